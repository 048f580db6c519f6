//! Checks that a payload that a guest wants to send is a DHCP message of this client.

use crate::frame::MacBytes;
use std::net::{IpAddr, Ipv4Addr};

/// The longest payload that is sent, in bytes. This length fits into one frame.
pub const LONGEST: usize = 1400;

const REQUEST: u8 = 1;
const ETHERNET: [u8; 2] = [1, 6];
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// The place of the first option.
const OPTIONS: usize = 240;

const DECLINE: u8 = 4;
const RELEASE: u8 = 7;

const PAD: u8 = 0;
const END: u8 = 255;
const WANTED: u8 = 50;
const OVERLOAD: u8 = 52;
const MESSAGE_TYPE: u8 = 53;
const CLIENT_ID: u8 = 61;
const RELAY: u8 = 82;

/// The data that the lease's messages must have.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The hardware address of the link.
    pub mac: MacBytes,
    /// The value of option 61; for DHCPv6 the DUID.
    pub id: &'a [u8],
    /// The address of the lease, if there is one.
    pub address: Option<IpAddr>,
    /// The other addresses that a message may name: addresses that servers have offered, and the address of an earlier
    /// lease.
    pub offered: &'a [IpAddr],
}

impl Expected<'_> {
    /// True for the address of the lease, and for the offered addresses.
    pub fn may_want(&self, named: IpAddr) -> bool {
        Some(named) == self.address || self.offered.contains(&named)
    }
}

/// Checks a payload, and returns the client's own address in it, or the unspecified address. An error says what is
/// wrong with the payload.
pub fn check(payload: &[u8], client: &Expected<'_>) -> Result<Ipv4Addr, &'static str> {
    if payload.len() > LONGEST {
        return Err("it is longer than a frame may be");
    }
    let (fixed, options) = payload.split_at_checked(OPTIONS).ok_or("it is shorter than a message is")?;
    let field = |at: usize, length: usize| fixed.get(at..at + length).unwrap_or_default();
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    if field(0, 1) != [REQUEST] || field(236, 4) != COOKIE {
        return Err("it is no message of a DHCP client");
    }
    if field(1, 2) != ETHERNET || field(28, 6) != client.mac || !is_zero(field(34, 10)) {
        return Err("it has another hardware address than the link");
    }
    if !is_zero(field(3, 1)) || !is_zero(field(24, 4)) {
        return Err("it says that it came over a relay");
    }
    if !is_zero(field(16, 8)) || !is_zero(field(44, 192)) {
        return Err("it has an answer's fields");
    }
    let from = <[u8; 4]>::try_from(field(12, 4)).map(Ipv4Addr::from).map_err(|_| "it is shorter than a message is")?;
    let kind = check_options(options, client)?;
    // A requested address can be given back before the server's answer comes.
    let is_own = Some(from.into()) == client.address || kind == RELEASE && client.may_want(from.into());
    if !from.is_unspecified() && !is_own {
        return Err("it names an address that is not this lease's");
    }
    Ok(from)
}

/// Returns the address that a server's message offers (`yiaddr`), if it offers one.
pub fn offered(payload: &[u8]) -> Option<IpAddr> {
    let address: [u8; 4] = payload.get(16..20)?.try_into().ok()?;
    Some(IpAddr::from(address)).filter(|address| !address.is_unspecified())
}

/// Checks the options, and returns the type of the message.
fn check_options(options: &[u8], client: &Expected<'_>) -> Result<u8, &'static str> {
    let (mut rest, mut kinds, mut ids, mut wanted) = (options, 0, 0, 0);
    let mut kind = 0;
    loop {
        let (code, after) = rest.split_first().ok_or("its options have no end")?;
        match *code {
            PAD => {
                rest = after;
                continue;
            }
            END if after.iter().all(|byte| *byte == PAD) => break,
            END => return Err("it has bytes behind its options"),
            _ => {}
        }
        let (length, after) = after.split_first().ok_or("an option has no length")?;
        let (value, after) = after.split_at_checked(usize::from(*length)).ok_or("an option is cut off")?;
        match *code {
            // DISCOVER, REQUEST, DECLINE and RELEASE.
            MESSAGE_TYPE => {
                let [named @ (1 | 3 | DECLINE | RELEASE)] = value else { return Err("it is not of a client's type") };
                kinds += 1;
                kind = *named;
            }
            CLIENT_ID if value == client.id => ids += 1,
            CLIENT_ID => return Err("it has another client's identifier"),
            WANTED => {
                let named = <[u8; 4]>::try_from(value).map(IpAddr::from).map_err(|_| "it wants half an address")?;
                if !client.may_want(named) {
                    return Err("it wants an address that no server has offered");
                }
                wanted += 1;
            }
            OVERLOAD | RELAY => return Err("it has an option that a client does not send"),
            _ => {}
        }
        rest = after;
    }
    match (kinds, ids, wanted) {
        (1, 1, 0) if kind == DECLINE => Err("it declines no address"),
        (1, 1, 0 | 1) => Ok(kind),
        (1, 1, _) => Err("it wants two addresses"),
        (_, 1, _) => Err("it has no type, or two"),
        _ => Err("it has no identifier, or two"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacBytes = [2, 0, 0, 0, 0, 1];
    const OFFERED: Ipv4Addr = Ipv4Addr::new(10, 5, 0, 8);
    const OWN: Expected<'_> = Expected {
        mac: MAC,
        id: b"\0c1/n/eth0",
        address: Some(IpAddr::V4(Ipv4Addr::new(10, 5, 0, 7))),
        offered: &[IpAddr::V4(OFFERED)],
    };

    fn message(options: &[(u8, &[u8])]) -> Vec<u8> {
        let mut message = vec![0; OPTIONS];
        message[..3].copy_from_slice(&[1, 1, 6]);
        message[4..8].copy_from_slice(&[9, 9, 9, 9]);
        message[28..34].copy_from_slice(&MAC);
        message[236..240].copy_from_slice(&COOKIE);
        for (code, value) in options {
            message.extend([*code, value.len() as u8]);
            message.extend(*value);
        }
        message.push(END);
        message.resize(message.len().max(300), 0);
        message
    }

    fn discover() -> Vec<u8> {
        message(&[(53, &[1]), (61, OWN.id), (55, &[1, 3])])
    }

    #[test]
    fn a_clients_messages_pass() {
        for kind in [1, 3, 4, 7] {
            for wanted in [[10, 5, 0, 7], OFFERED.octets()] {
                let payload = message(&[(53, &[kind]), (61, OWN.id), (50, &wanted)]);
                assert_eq!(check(&payload, &OWN), Ok(Ipv4Addr::UNSPECIFIED), "{kind}");
            }
        }
        let mut renewal = discover();
        renewal[12..16].copy_from_slice(&[10, 5, 0, 7]);
        assert_eq!(check(&renewal, &OWN), Ok(Ipv4Addr::new(10, 5, 0, 7)));
    }

    #[test]
    fn nothing_else_does() {
        let spoilt = |at: usize, value: u8| {
            let mut payload = discover();
            payload[at] = value;
            payload
        };
        let cases: Vec<(&str, Vec<u8>)> = vec![
            ("an answer", spoilt(0, 2)),
            ("another kind of hardware", spoilt(1, 6)),
            ("a longer hardware address", spoilt(2, 16)),
            ("a hop", spoilt(3, 1)),
            ("another address of its own", spoilt(15, 9)),
            ("an offered address", spoilt(16, 10)),
            ("a server", spoilt(20, 10)),
            ("a relay", spoilt(24, 10)),
            ("another's hardware address", spoilt(33, 9)),
            ("more hardware address", spoilt(34, 9)),
            ("a server's name", spoilt(44, b'x')),
            ("a file", spoilt(108, b'x')),
            ("no cookie", spoilt(236, 0)),
            ("no options", discover()[..OPTIONS].to_vec()),
            ("less than a message", discover()[..100].to_vec()),
            ("nothing", Vec::new()),
            ("an offer", message(&[(53, &[2]), (61, OWN.id)])),
            ("a question for settings", message(&[(53, &[8]), (61, OWN.id)])),
            ("a request for another's address", message(&[(53, &[3]), (61, OWN.id), (50, &[10, 5, 0, 9])])),
            ("a search for another's address", message(&[(53, &[1]), (61, OWN.id), (50, &[10, 5, 0, 9])])),
            ("another's address as taken", message(&[(53, &[4]), (61, OWN.id), (50, &[10, 5, 0, 9])])),
            ("no address as taken", message(&[(53, &[4]), (61, OWN.id)])),
            ("two addresses", message(&[(53, &[3]), (61, OWN.id), (50, &[10, 5, 0, 7]), (50, &[10, 5, 0, 7])])),
            ("half an address", message(&[(53, &[3]), (61, OWN.id), (50, &[10, 5])])),
            ("a type of two bytes", message(&[(53, &[1, 1]), (61, OWN.id)])),
            ("two types", message(&[(53, &[1]), (53, &[3]), (61, OWN.id)])),
            ("no type", message(&[(61, OWN.id)])),
            ("no identifier", message(&[(53, &[1])])),
            ("two identifiers", message(&[(53, &[1]), (61, OWN.id), (61, OWN.id)])),
            ("another's identifier", message(&[(53, &[1]), (61, b"\0c2/n/eth0")])),
            ("options elsewhere", message(&[(53, &[1]), (61, OWN.id), (52, &[3])])),
            ("a relay's option", message(&[(53, &[1]), (61, OWN.id), (82, &[1])])),
            ("bytes behind the end", {
                let mut payload = discover();
                payload.push(1);
                payload
            }),
            ("an option that is cut off", {
                let mut payload = discover();
                payload.truncate(OPTIONS + 5);
                payload
            }),
            (
                "too long",
                message(&[
                    (53, &[1]),
                    (61, OWN.id),
                    (1, &[0; 250]),
                    (2, &[0; 250]),
                    (3, &[0; 250]),
                    (4, &[0; 250]),
                    (5, &[0; 250]),
                ]),
            ),
        ];
        for (what, payload) in cases {
            assert!(check(&payload, &OWN).is_err(), "{what}");
        }
        let nobody = Expected { address: None, ..OWN };
        let mut renewal = discover();
        renewal[12..16].copy_from_slice(&[10, 5, 0, 7]);
        assert!(check(&renewal, &nobody).is_err(), "an address without a lease");
    }

    /// A server may have given the requested address, and its answer has not come yet.
    #[test]
    fn a_requested_address_is_given_back() {
        let nobody = Expected { address: None, ..OWN };
        for (kind, address, passes) in
            [(7, OFFERED, true), (3, OFFERED, false), (4, OFFERED, false), (7, Ipv4Addr::new(10, 5, 0, 9), false)]
        {
            let mut payload = message(&[(53, &[kind]), (61, OWN.id), (50, &OFFERED.octets())]);
            payload[12..16].copy_from_slice(&address.octets());
            let expected = if passes { Ok(address) } else { Err("it names an address that is not this lease's") };
            assert_eq!(check(&payload, &nobody), expected, "{kind} {address}");
        }
    }

    #[test]
    fn an_offer_has_an_address() {
        let mut offer = discover();
        assert_eq!(offered(&offer), None);
        offer[16..20].copy_from_slice(&OFFERED.octets());
        assert_eq!(offered(&offer), Some(OFFERED.into()));
        assert_eq!(offered(&offer[..19]), None);
    }
}
