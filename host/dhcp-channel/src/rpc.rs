//! Go's net/rpc, as the native `dhcp` plugin and its daemon use it. The types are those of the CNI library for Go.

use crate::gob::{Decoder, Encoder, GobError, Schema, Value};
use crate::message::Attachment;
use ipnet::IpNet;
use postern_dhcp::{Lease, LeaseAddress, LeaseDns, LeaseRoute};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The method that acquires a lease, or returns the one that is there.
pub const ALLOCATE: &str = "DHCP.Allocate";

/// The method that gives a lease back.
pub const RELEASE: &str = "DHCP.Release";

static REQUEST: Schema = Schema::Struct("Request", &[("ServiceMethod", &Schema::Text), ("Seq", &Schema::Uint)]);

static RESPONSE: Schema =
    Schema::Struct("Response", &[("ServiceMethod", &Schema::Text), ("Seq", &Schema::Uint), ("Error", &Schema::Text)]);

static ARGUMENTS: Schema = Schema::Struct(
    "CmdArgs",
    &[
        ("ContainerID", &Schema::Text),
        ("Netns", &Schema::Text),
        ("IfName", &Schema::Text),
        ("Args", &Schema::Text),
        ("Path", &Schema::Text),
        ("NetnsOverride", &Schema::Text),
        ("StdinData", &Schema::Bytes),
    ],
);

static NETWORK: Schema = Schema::Struct("IPNet", &[("IP", &Schema::Bytes), ("Mask", &Schema::Bytes)]);

static ADDRESS: Schema = Schema::Struct("IPConfig", &[("Address", &NETWORK), ("Gateway", &Schema::Bytes)]);

static ROUTE: Schema = Schema::Struct(
    "Route",
    &[("Dst", &NETWORK), ("GW", &Schema::Bytes), ("Priority", &Schema::Int), ("Scope", &Schema::Int)],
);

static TEXTS: Schema = Schema::List("[]string", &Schema::Text);

static DNS: Schema = Schema::Struct("DNS", &[("Nameservers", &TEXTS), ("Domain", &Schema::Text), ("Search", &TEXTS)]);

static ADDRESSES: Schema = Schema::List("[]*types100.IPConfig", &ADDRESS);

static ROUTES: Schema = Schema::List("[]*types.Route", &ROUTE);

static RESULT: Schema = Schema::Struct("Result", &[("IPs", &ADDRESSES), ("Routes", &ROUTES), ("DNS", &DNS)]);

static NOTHING: Schema = Schema::Struct("struct {}", &[]);

/// The client's side of a connection.
#[derive(Debug, Default)]
pub struct Client {
    encoder: Encoder,
    pub(crate) decoder: Decoder,
    sequence: u64,
}

impl Client {
    /// Returns the bytes of a call. The answer is two values: a header with `Error`, and a result.
    ///
    /// # Errors
    /// None is expected.
    pub fn request(&mut self, method: &str, attachment: &Attachment) -> Result<Vec<u8>, GobError> {
        let header = fields([("ServiceMethod", text(method)), ("Seq", Value::Uint(self.sequence))]);
        self.sequence += 1;
        let mut stream = self.encoder.encode(&REQUEST, &header)?;
        let arguments = fields([
            ("ContainerID", text(&attachment.container_id)),
            ("Netns", text(&attachment.netns)),
            ("IfName", text(&attachment.ifname)),
            ("Args", text(&attachment.args)),
            ("Path", text(&attachment.path)),
            ("StdinData", Value::Bytes(attachment.configuration.clone().into_bytes())),
        ]);
        stream.extend(self.encoder.encode(&ARGUMENTS, &arguments)?);
        Ok(stream)
    }
}

/// The server's side of a connection.
#[derive(Debug, Default)]
pub struct Server {
    encoder: Encoder,
    decoder: Decoder,
    header: Option<Header>,
}

/// The header of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The method.
    pub method: String,
    /// The number of the call, which its answer must have.
    pub sequence: u64,
}

/// A call of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its header.
    pub header: Header,
    /// Its attachment. The network's name is in the configuration.
    pub attachment: Attachment,
}

impl Server {
    /// Takes one message of the stream (see [`crate::gob::split`]). Returns the call that it completes.
    ///
    /// # Errors
    /// It is no message, or no call.
    pub fn message(&mut self, message: &[u8]) -> Result<Option<Call>, GobError> {
        let Some(value) = self.decoder.message(message)? else { return Ok(None) };
        let Some(header) = self.header.take() else {
            let method = value.text("ServiceMethod").ok_or(GobError("a call has no method"))?.to_owned();
            let sequence = value.number("Seq").and_then(|number| u64::try_from(number).ok());
            let sequence = sequence.ok_or(GobError("a call has no number"))?;
            self.header = Some(Header { method, sequence });
            return Ok(None);
        };
        let word = |name| value.text(name).map(str::to_owned).ok_or(GobError("an argument is no text"));
        let configuration = value.bytes("StdinData").ok_or(GobError("the configuration has no bytes"))?.to_vec();
        let configuration = String::from_utf8(configuration).map_err(|_| GobError("the configuration is not UTF-8"))?;
        let attachment = Attachment {
            container_id: word("ContainerID")?,
            network: String::new(),
            ifname: word("IfName")?,
            netns: word("Netns")?,
            args: word("Args")?,
            path: word("Path")?,
            configuration,
            families: Vec::new(),
        };
        Ok(Some(Call { header, attachment }))
    }

    /// Returns the bytes of an answer: a lease, nothing, or the words of an error.
    ///
    /// # Errors
    /// None is expected.
    pub fn answer(&mut self, header: &Header, answer: Result<Option<&Lease>, &str>) -> Result<Vec<u8>, GobError> {
        let error = answer.err().unwrap_or_default();
        let head = fields([
            ("ServiceMethod", text(&header.method)),
            ("Seq", Value::Uint(header.sequence)),
            ("Error", text(error)),
        ]);
        let mut stream = self.encoder.encode(&RESPONSE, &head)?;
        stream.extend(match answer {
            Ok(Some(lease)) => self.encoder.encode(&RESULT, &result(lease))?,
            Ok(None) | Err(_) => self.encoder.encode(&NOTHING, &Value::Struct(Vec::new()))?,
        });
        Ok(stream)
    }
}

/// Reads a native daemon's result. It has no times and no server.
///
/// # Errors
/// It is no result.
pub fn lease(result: &Value) -> Result<Lease, GobError> {
    let list = |name| result.list(name).ok_or(GobError("a result has a field of another type"));
    let mut lease = Lease::default();
    for address in list("IPs")? {
        let network = address.field("Address").and_then(network).ok_or(GobError("a result has no address"))?;
        lease.addresses.push(LeaseAddress { address: network, gateway: address_of(address, "Gateway") });
    }
    for route in list("Routes")? {
        let dst = route.field("Dst").and_then(network).ok_or(GobError("a route has no destination"))?;
        let number = |name: &str| route.field(name).and_then(|_| route.number(name));
        lease.routes.push(LeaseRoute {
            dst,
            gw: address_of(route, "GW"),
            scope: number("Scope").and_then(|scope| u8::try_from(scope).ok()),
            priority: number("Priority").and_then(|priority| u32::try_from(priority).ok()),
        });
    }
    if let Some(dns) = result.field("DNS") {
        let words = |name| -> Vec<String> {
            let list = dns.list(name).unwrap_or_default().iter();
            list.filter_map(|word| if let Value::Text(word) = word { Some(word.clone()) } else { None }).collect()
        };
        lease.dns = LeaseDns {
            nameservers: words("Nameservers").iter().filter_map(|word| word.parse().ok()).collect(),
            domain: dns.text("Domain").filter(|domain| !domain.is_empty()).map(str::to_owned),
            search: words("Search"),
        };
    }
    Ok(lease)
}

fn result(lease: &Lease) -> Value {
    let addresses = lease.addresses.iter().map(|address| {
        fields([("Address", net(&address.address)), ("Gateway", Value::Bytes(octets(address.gateway)))])
    });
    let routes = lease.routes.iter().map(|route| {
        let mut members = vec![("Dst".to_owned(), net(&route.dst)), ("GW".to_owned(), Value::Bytes(octets(route.gw)))];
        members.extend(route.priority.map(|priority| ("Priority".to_owned(), Value::Int(priority.into()))));
        members.extend(route.scope.map(|scope| ("Scope".to_owned(), Value::Int(scope.into()))));
        Value::Struct(members)
    });
    let texts = |list: &[String]| Value::List(list.iter().map(|word| text(word)).collect());
    let servers: Vec<String> = lease.dns.nameservers.iter().map(ToString::to_string).collect();
    let dns = fields([
        ("Nameservers", texts(&servers)),
        ("Domain", text(lease.dns.domain.as_deref().unwrap_or_default())),
        ("Search", texts(&lease.dns.search)),
    ]);
    fields([("IPs", Value::List(addresses.collect())), ("Routes", Value::List(routes.collect())), ("DNS", dns)])
}

fn fields<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Struct(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn text(word: &str) -> Value {
    Value::Text(word.to_owned())
}

/// Makes a `net.IPNet`: an address as it is, and the mask.
fn net(network: &IpNet) -> Value {
    let bytes = |address| Value::Bytes(octets(Some(address)));
    fields([("IP", bytes(network.addr())), ("Mask", bytes(network.netmask()))])
}

fn octets(address: Option<IpAddr>) -> Vec<u8> {
    match address {
        None => Vec::new(),
        Some(IpAddr::V4(address)) => address.octets().to_vec(),
        Some(IpAddr::V6(address)) => address.octets().to_vec(),
    }
}

/// Reads a `net.IP`: Go has IPv4 addresses in 4 or in 16 bytes.
fn ip(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(four).into());
    }
    Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical())
}

fn address_of(value: &Value, name: &str) -> Option<IpAddr> {
    ip(value.bytes(name)?)
}

fn network(value: &Value) -> Option<IpNet> {
    let (address, mask) = (address_of(value, "IP")?, value.bytes("Mask")?);
    // The mask of an IPv4 network may have 16 bytes too.
    let mask = match (address, mask) {
        (IpAddr::V4(_), [prefix @ .., a, b, c, d]) if prefix.len() == 12 => IpAddr::V4(Ipv4Addr::new(*a, *b, *c, *d)),
        (IpAddr::V6(_), mask) => IpAddr::V6(<[u8; 16]>::try_from(mask).ok()?.into()),
        (IpAddr::V4(_), mask) => IpAddr::V4(<[u8; 4]>::try_from(mask).ok()?.into()),
    };
    IpNet::with_netmask(address, mask).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gob::split;

    fn attachment() -> Attachment {
        Attachment {
            container_id: "c1".to_owned(),
            ifname: "eth0".to_owned(),
            netns: "/run/netns/c1".to_owned(),
            args: "K8S_POD_NAME=p".to_owned(),
            path: "/opt/cni/bin".to_owned(),
            configuration: r#"{"name":"n"}"#.to_owned(),
            network: String::new(),
            families: Vec::new(),
        }
    }

    fn lease_of_all() -> Lease {
        Lease {
            addresses: vec![LeaseAddress {
                address: "10.5.0.50/24".parse().unwrap(),
                gateway: Some("10.5.0.1".parse().unwrap()),
            }],
            routes: vec![
                LeaseRoute {
                    dst: "0.0.0.0/0".parse().unwrap(),
                    gw: Some("10.5.0.1".parse().unwrap()),
                    scope: None,
                    priority: Some(100),
                },
                LeaseRoute { dst: "10.8.0.0/16".parse().unwrap(), gw: None, scope: Some(253), priority: None },
            ],
            dns: LeaseDns {
                nameservers: vec!["10.5.0.2".parse().unwrap()],
                domain: Some("example.org".to_owned()),
                search: vec!["example.org".to_owned()],
            },
            ..Lease::default()
        }
    }

    #[test]
    fn calls_and_answers_come_through() {
        let (mut client, mut server) = (Client::default(), Server::default());
        for sequence in 0..3 {
            let stream = client.request(ALLOCATE, &attachment()).unwrap();
            let (mut rest, mut call) = (&stream[..], None);
            while let Some((message, after)) = split(rest).unwrap() {
                call = call.or(server.message(message).unwrap());
                rest = after;
            }
            let call = call.unwrap();
            assert_eq!(call.header, Header { method: ALLOCATE.to_owned(), sequence });
            assert_eq!(call.attachment, attachment());
            let stream = server.answer(&call.header, Ok(Some(&lease_of_all()))).unwrap();
            let (mut rest, mut values) = (&stream[..], Vec::new());
            while let Some((message, after)) = split(rest).unwrap() {
                values.extend(client.decoder.message(message).unwrap());
                rest = after;
            }
            let [header, body] = &values[..] else { panic!("{values:?}") };
            assert_eq!(header.text("Error"), Some(""));
            assert_eq!(lease(body).unwrap(), lease_of_all());
        }
        let header = Header { method: RELEASE.to_owned(), sequence: 3 };
        assert!(!server.answer(&header, Ok(None)).unwrap().is_empty());
        assert!(!server.answer(&header, Err("no")).unwrap().is_empty());
    }

    #[test]
    fn addresses_in_both_lengths() {
        let short = fields([("IP", Value::Bytes(vec![10, 5, 0, 7])), ("Mask", Value::Bytes(vec![255, 255, 255, 0]))]);
        let mut long = vec![0; 10];
        long.extend([255, 255, 10, 5, 0, 7]);
        let long = fields([("IP", Value::Bytes(long)), ("Mask", Value::Bytes(vec![255, 255, 255, 0]))]);
        assert_eq!(network(&short), Some("10.5.0.7/24".parse().unwrap()));
        assert_eq!(network(&long), network(&short));
        assert_eq!(network(&fields([("IP", Value::Bytes(vec![1; 5]))])), None);
        let odd = fields([("IP", Value::Bytes(vec![10, 5, 0, 7])), ("Mask", Value::Bytes(vec![255, 0, 255, 0]))]);
        assert_eq!(network(&odd), None);
    }
}
