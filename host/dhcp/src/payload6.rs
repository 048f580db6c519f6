//! Checks a payload that a guest wants to send: it must be a DHCPv6 message of this client.

use crate::payload::{Expected, LONGEST};
use std::net::IpAddr;

const SOLICIT: u8 = 1;
const REQUEST: u8 = 3;
const RENEW: u8 = 5;
const REBIND: u8 = 6;
const RELEASE: u8 = 8;
const DECLINE: u8 = 9;

const CLIENT_ID: u16 = 1;
const SERVER_ID: u16 = 2;
const ASSOCIATION: u16 = 3;
const ADDRESS: u16 = 5;
const WANTED: u16 = 6;
const ELAPSED: u16 = 8;

/// The longest identifier of a server (RFC 8415, 11.1), with its type.
const LONGEST_DUID: usize = 130;

/// The identifier of the one association of a client. Each attachment is a separate client.
const IAID: [u8; 4] = [0, 0, 0, 1];

/// The most addresses of one offer that are looked at. A client wants one address.
pub const MOST: usize = 4;

/// Checks a payload. An error says what is wrong with the payload.
pub fn check(payload: &[u8], client: &Expected<'_>) -> Result<(), &'static str> {
    if payload.len() > LONGEST {
        return Err("it is longer than a frame may be");
    }
    let (header, options) = payload.split_at_checked(4).ok_or("it is shorter than a message is")?;
    let kind = header.first().copied().unwrap_or_default();
    if ![SOLICIT, REQUEST, RENEW, REBIND, RELEASE, DECLINE].contains(&kind) {
        return Err("it is no message of a DHCPv6 client");
    }
    let mut association = None;
    let mut seen = Vec::new();
    for (code, value) in Options(options) {
        let value = value?;
        // Two readers could read a repeated option in different ways.
        if seen.contains(&code) {
            return Err("it has an option twice");
        }
        seen.push(code);
        match code {
            CLIENT_ID if value == client.id => {}
            CLIENT_ID => return Err("it has another client's identifier"),
            SERVER_ID if (1..=LONGEST_DUID).contains(&value.len()) => {}
            ASSOCIATION => association = Some(address_of(value)?),
            WANTED if value.len().is_multiple_of(2) => {}
            ELAPSED if value.len() == 2 => {}
            _ => return Err("it has an option that a client does not send"),
        }
    }
    if !seen.contains(&CLIENT_ID) {
        return Err("it has no identifier");
    }
    let named = association.ok_or("it has no association")?;
    match (kind, named) {
        (SOLICIT | REQUEST, None) => Ok(()),
        // A requested address can be given back before the server's answer comes.
        (SOLICIT | REQUEST | DECLINE | RELEASE, Some(named)) if client.may_want(named) => Ok(()),
        (SOLICIT | REQUEST | DECLINE, _) => Err("it names an address that no server has offered"),
        _ if named.is_some() && named == client.address => Ok(()),
        _ => Err("it names an address that is not this lease's"),
    }
}

/// Returns the first [`MOST`] addresses that a server's message offers.
pub fn offered(payload: &[u8]) -> Vec<IpAddr> {
    let inside =
        |options, code| Options(options).filter_map(move |(found, value)| value.ok().filter(|_| found == code));
    let associations = inside(payload.get(4..).unwrap_or_default(), ASSOCIATION);
    let addresses = associations.filter_map(|one| one.get(12..)).flat_map(|options| inside(options, ADDRESS));
    addresses.filter_map(|value| value.first_chunk::<16>()).map(|bytes| IpAddr::from(*bytes)).take(MOST).collect()
}

/// Reads an association. It must be this client's association, with at most one address. Times are not checked.
fn address_of(association: &[u8]) -> Result<Option<IpAddr>, &'static str> {
    let (header, options) = association.split_at_checked(12).ok_or("its association is cut off")?;
    if !header.starts_with(&IAID) {
        return Err("it has another association than the lease");
    }
    let mut found = None;
    for (code, value) in Options(options) {
        let value: &[u8; 24] =
            value?.try_into().map_err(|_| "its association has an option that a client does not send")?;
        if code != ADDRESS || found.is_some() {
            return Err("its association has an option that a client does not send");
        }
        found = value.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes));
    }
    Ok(found)
}

/// The options of a message. The last option is an error if it is cut off.
struct Options<'a>(&'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = (u16, Result<&'a [u8], &'static str>);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.0);
        if rest.is_empty() {
            return None;
        }
        let Some(([a, b, c, d], after)) = rest.split_first_chunk::<4>() else {
            return Some((0, Err("an option is cut off")));
        };
        let (code, length) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
        let Some((value, after)) = after.split_at_checked(usize::from(length)) else {
            return Some((code, Err("an option is cut off")));
        };
        self.0 = after;
        Some((code, Ok(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    const ID: &[u8] = b"\0\x04sixteen bytes....";
    const ADDRESS_OF_LEASE: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7));
    const OFFERED: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9));
    const OWN: Expected<'_> = Expected { mac: [0; 6], id: ID, address: Some(ADDRESS_OF_LEASE), offered: &[OFFERED] };

    fn option(code: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len()).unwrap();
        [&code.to_be_bytes(), &length.to_be_bytes(), value].concat()
    }

    fn octets(address: IpAddr) -> [u8; 16] {
        let IpAddr::V6(address) = address else { panic!("{address}") };
        address.octets()
    }

    fn association(id: u8, address: Option<IpAddr>) -> Vec<u8> {
        let inner = address.map(|address| option(5, &[&octets(address)[..], &[0; 8]].concat())).unwrap_or_default();
        option(3, &[&[0, 0, 0, id], &[0; 8][..], &inner].concat())
    }

    fn message(kind: u8, options: &[Vec<u8>]) -> Vec<u8> {
        [&[kind, 1, 2, 3][..], &options.concat()].concat()
    }

    #[test]
    fn a_clients_messages_pass() {
        for kind in [SOLICIT, REQUEST, RENEW, REBIND, RELEASE, DECLINE] {
            let options = [
                option(1, ID),
                option(2, b"\0\x03\0\x01server"),
                association(1, OWN.address),
                option(6, &[0, 23, 0, 24]),
                option(8, &[0, 0]),
            ];
            assert_eq!(check(&message(kind, &options), &OWN), Ok(()), "{kind}");
        }
        for kind in [SOLICIT, REQUEST, DECLINE, RELEASE] {
            let offered = message(kind, &[option(1, ID), association(1, Some(OFFERED))]);
            assert_eq!(check(&offered, &OWN), Ok(()), "{kind}");
        }
        let first = message(SOLICIT, &[option(1, ID), association(1, None)]);
        assert_eq!(check(&first, &Expected { address: None, ..OWN }), Ok(()));
    }

    #[test]
    fn nothing_else_does() {
        let (id, own) = (|| option(1, ID), || association(1, OWN.address));
        let other = Some("2001:db8::8".parse().unwrap());
        let twice = option(3, &[&[0, 0, 0, 1], &[0; 8][..], &own()[16..], &own()[16..]].concat());
        let prefix = option(3, &[&[0, 0, 0, 1], &[0; 8][..], &option(26, &[0; 25])].concat());
        let cases: Vec<(&str, Vec<u8>)> = vec![
            ("nothing", Vec::new()),
            ("less than a message", vec![1, 2, 3]),
            ("an advertisement", message(2, &[id(), own()])),
            ("a reply", message(7, &[id(), own()])),
            ("a message of a relay", message(12, &[id(), own()])),
            ("an advertisement of a router", message(134, &[id(), own()])),
            ("a confirmation, which the client never sends", message(4, &[id(), own()])),
            ("no identifier", message(1, &[own()])),
            ("another's identifier", message(1, &[option(1, b"\0\x04another"), own()])),
            ("two identifiers", message(1, &[id(), id(), own()])),
            ("no association", message(1, &[id()])),
            ("another association", message(1, &[id(), association(2, None)])),
            ("two associations", message(1, &[id(), own(), own()])),
            ("two addresses", message(3, &[id(), twice])),
            ("a prefix", message(3, &[id(), prefix])),
            ("a delegated prefix", message(3, &[id(), own(), option(25, &[0; 12])])),
            ("a relay's option", message(1, &[id(), own(), option(9, b"x")])),
            ("a vendor's option", message(1, &[id(), own(), option(16, b"x")])),
            ("an empty server", message(3, &[id(), own(), option(2, b"")])),
            ("half a number", message(1, &[id(), own(), option(6, &[0, 23, 0])])),
            ("looking for another's address", message(SOLICIT, &[id(), association(1, other)])),
            ("requesting another's address", message(REQUEST, &[id(), association(1, other)])),
            ("saying that another's address is taken", message(DECLINE, &[id(), association(1, other)])),
            ("saying that no address is taken", message(DECLINE, &[id(), association(1, None)])),
            ("renewing an offer", message(RENEW, &[id(), association(1, Some(OFFERED))])),
            ("renewing another's address", message(RENEW, &[id(), association(1, other)])),
            ("giving back another's address", message(RELEASE, &[id(), association(1, other)])),
            ("giving back nothing", message(RELEASE, &[id(), association(1, None)])),
            ("an option that is cut off", {
                let mut cut = message(1, &[id(), own()]);
                cut.pop();
                cut
            }),
            ("bytes behind the options", {
                let mut more = message(1, &[id(), own()]);
                more.extend([0, 8]);
                more
            }),
            ("too long", message(1, &[id(), own(), option(6, &[0; LONGEST])])),
        ];
        for (what, payload) in cases {
            assert!(check(&payload, &OWN).is_err(), "{what}");
        }
        let nobody = Expected { address: None, ..OWN };
        assert!(check(&message(RENEW, &[id(), own()]), &nobody).is_err(), "an address without a lease");
    }

    #[test]
    fn an_offer_has_addresses() {
        let address = |last: u8| option(5, &[&[0; 15], &[last][..], &[0; 8], &option(13, &[0, 0])].concat());
        let inner = |count: u8| (1..=count).map(address).collect::<Vec<_>>().concat();
        let association = |inner: &[u8]| option(3, &[&[0, 0, 0, 1], &[0; 8][..], inner].concat());
        let found =
            |options: &[Vec<u8>]| offered(&message(2, options)).iter().map(|one| octets(*one)[15]).collect::<Vec<_>>();
        assert_eq!(found(&[option(1, ID), association(&inner(2)), association(&inner(1))]), [1, 2, 1]);
        assert_eq!(found(&[association(&inner(100))]), [1, 2, 3, 4]);
        assert_eq!(found(&[association(&[]), option(3, &[0; 11]), association(&option(5, &[0; 15]))]), [0; 0]);
        assert!(offered(&[]).is_empty() && offered(&[2, 1, 2, 3, 0, 3, 9, 9]).is_empty());
    }
}
