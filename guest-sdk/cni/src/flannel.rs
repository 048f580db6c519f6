//! The subnet file of flannel, and the configuration of its delegate. Plugin and host share this code. For the
//! delegate, the host accepts only this configuration.

use crate::address::parse_cidr;
use crate::{Error, Json, NetConf};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// The default subnet file.
pub const SUBNET_FILE: &str = "/run/flannel/subnet.env";

/// The default directory of the native plugin's files.
pub const DATA_DIRECTORY: &str = "/var/lib/cni/flannel";

/// The default delegate.
pub const DELEGATE: &str = "bridge";

/// The default IPAM plugin.
pub const IPAM: &str = "host-local";

/// The contents of a subnet file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubnetFile {
    /// The networks of all nodes, IPv4 first, each once.
    pub networks: Vec<IpNet>,
    /// The networks of this node's containers: at most one of IPv4, then at most one of IPv6.
    pub subnets: Vec<IpNet>,
    /// The MTU of links, in bytes.
    pub mtu: u32,
    /// True if flannel itself masquerades.
    pub ip_masq: bool,
}

impl SubnetFile {
    /// Reads the text of a subnet file. `path` is for messages.
    ///
    /// # Errors
    /// Code 999: a key without a value, a value that can't be read, or missing keys, with their names.
    pub fn parse(text: &str, path: &str) -> Result<Self, Error> {
        let (mut networks, mut subnets) = ([Vec::new(), Vec::new()], [None, None]);
        let (mut mtu, mut ip_masq) = (None, None);
        for line in text.lines() {
            let (key, value) = match line.split_once('=') {
                Some((key, value)) => (key, Some(value)),
                None => (line, None),
            };
            let value = || value.ok_or_else(|| Error::internal(format!("{path} has {key} without a value")));
            match key {
                "FLANNEL_NETWORK" => networks[0] = list(key, value()?)?,
                "FLANNEL_IPV6_NETWORK" => networks[1] = list(key, value()?)?,
                "FLANNEL_SUBNET" => subnets[0] = Some(network(key, value()?)?),
                "FLANNEL_IPV6_SUBNET" => subnets[1] = Some(network(key, value()?)?),
                "FLANNEL_MTU" => {
                    let value = value()?;
                    mtu = Some(value.parse().map_err(|_| invalid(key, value, "a number of bytes"))?);
                }
                "FLANNEL_IPMASQ" => ip_masq = Some(value()? == "true"),
                _ => {}
            }
        }
        let (networks, subnets) = (networks.concat(), subnets.into_iter().flatten().collect::<Vec<_>>());
        let missing = [
            (networks.is_empty(), "FLANNEL_NETWORK"),
            (subnets.is_empty(), "FLANNEL_SUBNET"),
            (mtu.is_none(), "FLANNEL_MTU"),
            (ip_masq.is_none(), "FLANNEL_IPMASQ"),
        ];
        let missing: Vec<&str> = missing.into_iter().filter(|(is, _)| *is).map(|(_, name)| name).collect();
        let (Some(mtu), Some(ip_masq), []) = (mtu, ip_masq, missing.as_slice()) else {
            let message = format!("{path} is missing {}", missing.join(", "));
            return Err(
                Error::internal(message).with_details("flanneld writes this file: see the log of flannel's pod")
            );
        };
        Ok(Self { networks, subnets, mtu, ip_masq })
    }
}

fn invalid(key: &str, value: &str, wanted: &str) -> Error {
    Error::internal(format!("the subnet file has {key}={value}, which is not {wanted}"))
}

/// Reads a network. The network must have the IP version that its key names.
fn network(key: &str, value: &str) -> Result<IpNet, Error> {
    let wants_v6 = key.starts_with("FLANNEL_IPV6");
    let wanted = if wants_v6 { "a network of IPv6" } else { "a network of IPv4" };
    let net = parse_cidr(value).map_err(|_| invalid(key, value, wanted))?;
    if net.addr().is_ipv6() == wants_v6 { Ok(net.trunc()) } else { Err(invalid(key, value, wanted)) }
}

fn list(key: &str, value: &str) -> Result<Vec<IpNet>, Error> {
    let mut networks = Vec::new();
    for text in value.split(',') {
        let net = network(key, text)?;
        if !networks.contains(&net) {
            networks.push(net);
        }
    }
    Ok(networks)
}

/// The configuration keys of flannel.
#[derive(Clone, Debug, PartialEq)]
pub struct Flannel {
    /// `subnetFile`, or the default.
    pub subnet_file: String,
    /// `dataDir`, or the default.
    pub data_dir: String,
    /// `delegate.type`, or the default.
    pub delegate: String,
    keys: Vec<(String, Json)>,
    ipam: Vec<(String, Json)>,
}

impl Flannel {
    /// Reads the keys.
    ///
    /// # Errors
    /// Code 999 for a key of the wrong type, for `delegate.name` or `delegate.ipam`, and for a `delegate.type` that is
    /// no text.
    pub fn read(conf: &NetConf) -> Result<Self, Error> {
        let fields = conf.fields();
        let text = |key: &str, default: &str| {
            let found = fields.string(key)?.filter(|text| !text.is_empty());
            Ok::<_, Error>(found.unwrap_or_else(|| default.to_owned()))
        };
        let owned = |key: &str| {
            let map = fields.map(key)?.unwrap_or_default();
            Ok::<_, Error>(map.into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect::<Vec<_>>())
        };
        let (keys, ipam) = (owned("delegate")?, owned("ipam")?);
        let delegate = match named(&keys, "type") {
            None => DELEGATE.to_owned(),
            Some(Json::String(name)) => name.clone(),
            Some(_) => {
                return Err(Error::internal("'delegate' dictionary, if present, must have (string) 'type' field"));
            }
        };
        for key in ["name", "ipam"] {
            if named(&keys, key).is_some() {
                let message = format!("'delegate' dictionary must not have '{key}' field, it'll be set by flannel");
                return Err(Error::internal(message));
            }
        }
        Ok(Self {
            subnet_file: text("subnetFile", SUBNET_FILE)?,
            data_dir: text("dataDir", DATA_DIRECTORY)?,
            delegate,
            keys,
            ipam,
        })
    }

    /// Returns the configuration of the delegate, with its keys sorted.
    ///
    /// # Errors
    /// Code 999: `ipam.routes` is no list.
    pub fn configuration(&self, conf: &NetConf, subnet: &SubnetFile) -> Result<Json, Error> {
        let mut keys = self.keys.clone();
        set(&mut keys, "name", Json::from(conf.name.as_str()));
        set(&mut keys, "type", Json::from(self.delegate.as_str()));
        default(&mut keys, "ipMasq", Json::Bool(!subnet.ip_masq));
        default(&mut keys, "mtu", Json::from(i64::from(subnet.mtu)));
        if self.delegate == DELEGATE {
            default(&mut keys, "isGateway", Json::Bool(true));
        }
        if !conf.cni_version.is_empty() {
            set(&mut keys, "cniVersion", Json::from(conf.cni_version.as_str()));
        }
        if let Some(config) = conf.fields().map("runtimeConfig")? {
            let config = config.into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
            set(&mut keys, "runtimeConfig", Json::Object(config));
        }
        set(&mut keys, "ipam", self.addresses(subnet)?);
        Ok(Json::Object(keys).sorted())
    }

    /// The `ipam` of the delegate.
    fn addresses(&self, subnet: &SubnetFile) -> Result<Json, Error> {
        let mut ipam = self.ipam.clone();
        default(&mut ipam, "type", Json::from(IPAM));
        let text = |net: &IpNet| Json::from(net.to_string().as_str());
        let range = |net: &IpNet| Json::Array(vec![Json::Object(vec![("subnet".to_owned(), text(net))])]);
        set(&mut ipam, "ranges", Json::Array(subnet.subnets.iter().map(range).collect()));
        let mut routes = match named(&ipam, "routes") {
            None => Vec::new(),
            Some(Json::Array(routes)) => routes.clone(),
            Some(other) => {
                let message = format!("'ipam.routes' is of type {} and not a list", other.kind());
                return Err(Error::internal(message));
            }
        };
        routes.extend(subnet.networks.iter().map(|net| Json::Object(vec![("dst".to_owned(), text(net))])));
        set(&mut ipam, "routes", Json::Array(routes));
        Ok(Json::Object(ipam))
    }
}

/// Returns the last value of a key, without `null` values. Plugins ignore case in keys, so every spelling counts.
fn named<'k>(keys: &'k [(String, Json)], name: &str) -> Option<&'k Json> {
    let mut found = keys.iter().rev().filter(|(key, _)| key.eq_ignore_ascii_case(name));
    found.find(|(_, value)| !value.is_null()).map(|(_, value)| value)
}

/// Sets a key to this value, and removes every other spelling of the key.
pub fn set(keys: &mut Vec<(String, Json)>, name: &str, value: Json) {
    keys.retain(|(key, _)| !key.eq_ignore_ascii_case(name));
    keys.push((name.to_owned(), value));
}

/// Sets a key to this value, if no spelling of the key has a value.
fn default(keys: &mut Vec<(String, Json)>, name: &str, value: Json) {
    if named(keys, name).is_none() {
        set(keys, name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print;

    const FILE: &str =
        "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";

    fn conf(keys: &str) -> NetConf {
        let text = format!(r#"{{"cniVersion":"1.0.0","name":"n","type":"flannel"{keys}}}"#);
        NetConf::parse(Json::parse(text.as_bytes(), 4096).unwrap()).unwrap()
    }

    fn configuration(keys: &str, file: &str) -> Result<String, String> {
        let (conf, text) = (conf(keys), |error: Error| error.to_string());
        let flannel = Flannel::read(&conf).map_err(text)?;
        let subnet = SubnetFile::parse(file, "/f").map_err(text)?;
        flannel.configuration(&conf, &subnet).map(|json| print::compact(&json)).map_err(text)
    }

    #[test]
    fn a_bridge_by_default() {
        assert_eq!(
            configuration("", FILE).unwrap(),
            r#"{"cniVersion":"1.0.0","ipMasq":false,"ipam":{"ranges":[[{"subnet":"10.244.1.0/24"}]],"routes":[{"dst":"10.244.0.0/16"}],"type":"host-local"},"isGateway":true,"mtu":1450,"name":"n","type":"bridge"}"#
        );
    }

    #[test]
    fn what_the_operator_says_stays() {
        let keys = r#","runtimeConfig":{"mac":"m"},"delegate":{"ISGATEWAY":false,"mtu":900,"ipMasq":true,"hairpinMode":true},
            "ipam":{"dataDir":"/d","type":"x","ranges":[[{"subnet":"1.2.3.0/24"}]],"Routes":[{"dst":"0.0.0.0/0"}]}"#;
        let both = "FLANNEL_IPV6_NETWORK=fd00::/48,fd00::/48\nFLANNEL_IPV6_SUBNET=fd00:0:0:1::1/64\n";
        assert_eq!(
            configuration(keys, &format!("{FILE}{both}other\n")).unwrap(),
            r#"{"ISGATEWAY":false,"cniVersion":"1.0.0","hairpinMode":true,"ipMasq":true,"ipam":{"dataDir":"/d","ranges":[[{"subnet":"10.244.1.0/24"}],[{"subnet":"fd00:0:0:1::/64"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"10.244.0.0/16"},{"dst":"fd00::/48"}],"type":"x"},"mtu":900,"name":"n","runtimeConfig":{"mac":"m"},"type":"bridge"}"#
        );
        let other = configuration(r#","delegate":{"type":"ptp"}"#, FILE).unwrap();
        assert!(!other.contains("isGateway") && other.ends_with(r#""type":"ptp"}"#), "{other}");
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        for (keys, message) in [
            (r#","delegate":{"name":"m"}"#, "must not have 'name' field"),
            (r#","delegate":{"Name":"m"}"#, "must not have 'name' field"),
            (r#","delegate":{"ipam":{}}"#, "must not have 'ipam' field"),
            (r#","delegate":{"type":7}"#, "(string) 'type'"),
            (r#","delegate":[]"#, "cannot unmarshal array"),
            (r#","ipam":{"routes":{}}"#, "of type object and not a list"),
        ] {
            let error = configuration(keys, FILE).unwrap_err();
            assert!(error.contains(message), "{keys}: {error}");
        }
        for (file, message) in [
            ("", "/f is missing FLANNEL_NETWORK, FLANNEL_SUBNET, FLANNEL_MTU, FLANNEL_IPMASQ"),
            ("FLANNEL_NETWORK=10.0.0.0/8\nFLANNEL_MTU=1450", "missing FLANNEL_SUBNET, FLANNEL_IPMASQ"),
            ("FLANNEL_NETWORK", "FLANNEL_NETWORK without a value"),
            ("FLANNEL_MTU=x", "FLANNEL_MTU=x"),
            ("FLANNEL_MTU=-1", "FLANNEL_MTU=-1"),
            ("FLANNEL_SUBNET=10.0.0.0", "FLANNEL_SUBNET=10.0.0.0"),
            ("FLANNEL_SUBNET=fd00::/64", "which is not a network of IPv4"),
            ("FLANNEL_IPV6_SUBNET=10.0.0.0/24", "which is not a network of IPv6"),
            ("FLANNEL_NETWORK=10.0.0.0/8,", "FLANNEL_NETWORK=,"),
        ] {
            let error = configuration("", file).unwrap_err();
            assert!(error.contains(message), "{file}: {error}");
        }
    }
}
