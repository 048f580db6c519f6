//! Ethernet frames of DHCPv6 and of neighbour discovery. As with DHCP for IPv4, the service writes all headers, and
//! reads only the headers of received frames.

use crate::frame::{ETHERNET, LONGEST_RECEIVED, MacBytes, Received, UDP, segment, sum_of, summed, word};
use std::net::{IpAddr, Ipv6Addr};

/// All servers and relays of the link (RFC 8415, 7.1).
const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// All routers of the link (RFC 4291, 2.7.1).
const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// All stations of the link.
const STATIONS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const HEADER: usize = 40;
const ICMP: u8 = 58;
const CLIENT: u16 = 546;
const SERVER: u16 = 547;

/// The hop limit of neighbour discovery: a packet with this limit has passed no router (RFC 4861, 6.1.2).
const OF_THIS_LINK: u8 = 255;

/// Messages of ICMPv6.
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// The messages of servers to clients: ADVERTISE and REPLY.
const OF_SERVERS: [u8; 2] = [2, 7];

/// Returns the frame that carries a payload to all servers, from the client's port to the servers' port.
pub fn udp(own: MacBytes, from: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    frame(own, from, SERVERS, UDP, segment(CLIENT, SERVER, payload), 6)
}

/// Returns the frame that asks routers to advertise themselves.
pub fn router_solicitation(own: MacBytes, from: Ipv6Addr) -> Vec<u8> {
    // The sender's hardware address as option 1, of one unit.
    let message = [&[ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0, 1, 1], &own[..]].concat();
    frame(own, from, ROUTERS, ICMP, message, 2)
}

/// Returns a frame that asks who has an address, without an address of the sender (RFC 4862, 5.4.2).
pub fn neighbour_probe(own: MacBytes, address: Ipv6Addr) -> Vec<u8> {
    let message = [&[NEIGHBOUR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0], &address.octets()[..]].concat();
    frame(own, Ipv6Addr::UNSPECIFIED, askers_of(address), ICMP, message, 2)
}

/// Returns the solicited-node multicast address of an address (RFC 4291, 2.7.1).
fn askers_of(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// Returns the hardware address to which questions about an address are sent.
pub fn multicast_of(address: Ipv6Addr) -> MacBytes {
    hardware(askers_of(address))
}

/// Returns the hardware address of a multicast address (RFC 2464, 7).
fn hardware(group: Ipv6Addr) -> MacBytes {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

/// Makes a frame to a multicast address, and puts the checksum in its place in `body`.
fn frame(own: MacBytes, from: Ipv6Addr, to: Ipv6Addr, next: u8, body: Vec<u8>, place: usize) -> Vec<u8> {
    let (group, from, to) = (hardware(to), from.octets(), to.octets());
    let body = summed(&from, &to, next, body, place);
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes();
    // Version 6, neither class nor flow.
    let header = [&[0x60, 0, 0, 0], &length[..], &[next, OF_THIS_LINK], &from, &to].concat();
    [&group[..], &own, &TYPE_IPV6, &header, &body].concat()
}

/// A packet without extension headers. Servers of the link and routers need no extension headers. A fragment has an
/// extension header, so it is refused.
struct Packet<'a> {
    from_mac: MacBytes,
    next: u8,
    hops: u8,
    from: Ipv6Addr,
    to: Ipv6Addr,
    body: &'a [u8],
}

impl<'a> Packet<'a> {
    fn read(frame: &'a [u8]) -> Option<Self> {
        let (ethernet, packet) = frame.split_at_checked(ETHERNET)?;
        let (header, rest) = packet.split_at_checked(HEADER)?;
        if ethernet.get(12..)? != TYPE_IPV6 || header.first()? >> 4 != 6 {
            return None;
        }
        let address = |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(header.get(at..at + 16)?).ok()?));
        Some(Self {
            from_mac: ethernet.get(6..12)?.try_into().ok()?,
            next: *header.get(6)?,
            hops: *header.get(7)?,
            from: address(8)?,
            to: address(24)?,
            // An Ethernet frame may have padding.
            body: rest.get(..usize::from(word(header, 4)?))?,
        })
    }

    fn is_right(&self) -> bool {
        sum_of(&self.from.octets(), &self.to.octets(), self.next, self.body) == 0
    }
}

/// Reads a server's answer or a router advertisement. For an advertisement the payload is the ICMPv6 message. `None`
/// for another frame, or for an invalid frame. The first byte of the payload shows the kind. With `is_summed` false,
/// the frame has no checksum yet, because the sender is on this machine.
pub fn read(frame: &[u8], is_summed: bool, own: Ipv6Addr) -> Option<Received> {
    let packet = Packet::read(frame)?;
    let payload = match packet.next {
        UDP => {
            let body = packet.body;
            let is_whole = usize::from(word(body, 4)?) == body.len();
            let is_for_client = packet.to == own && word(body, 2)? == CLIENT && word(body, 6)? != 0;
            body.get(8..).filter(|payload| is_whole && is_for_client && is_of_server(payload))?
        }
        ICMP => {
            let is_advertisement = packet.body.starts_with(&[ROUTER_ADVERTISEMENT, 0]) && packet.body.len() >= 16;
            let is_of_link = packet.hops == OF_THIS_LINK && packet.from.is_unicast_link_local();
            let is_for_us = packet.to == own || packet.to == STATIONS;
            Some(packet.body).filter(|_| is_advertisement && is_of_link && is_for_us)?
        }
        _ => return None,
    };
    if payload.len() > LONGEST_RECEIVED || is_summed && !packet.is_right() {
        return None;
    }
    Some(Received { from_mac: packet.from_mac, from: IpAddr::V6(packet.from), payload: payload.to_vec() })
}

/// True for a server's message. A server's message can't be mistaken for a router advertisement, which must pass other
/// checks.
fn is_of_server(payload: &[u8]) -> bool {
    payload.first().is_some_and(|kind| OF_SERVERS.contains(kind))
}

/// True if a payload of [`read`] is a router advertisement.
pub fn is_advertisement(payload: &[u8]) -> bool {
    payload.first() == Some(&ROUTER_ADVERTISEMENT)
}

/// True if a frame shows that another station has the address, or is about to take it (RFC 4862, 5.4.3).
pub fn neighbour_conflicts(frame: &[u8], is_summed: bool, own: MacBytes, address: Ipv6Addr) -> bool {
    let Some(packet) = Packet::read(frame) else { return false };
    let is_about = packet.body.get(8..24) == Some(&address.octets()[..]);
    let says = match packet.body.first_chunk::<2>() {
        Some([NEIGHBOUR_ADVERTISEMENT, 0]) => true,
        // A question without the asker's address is a probe, like our own probe.
        Some([NEIGHBOUR_SOLICITATION, 0]) => packet.from.is_unspecified(),
        _ => false,
    };
    let is_sound = packet.next == ICMP && packet.hops == OF_THIS_LINK && (!is_summed || packet.is_right());
    is_sound && is_about && says && packet.from_mac != own
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: MacBytes = [2, 0, 0, 0, 0, 1];
    const OTHER: MacBytes = [2, 0, 0, 0, 0, 2];
    const SELF: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);

    /// A packet of another station; `place` is the place of the checksum.
    fn packet(from: Ipv6Addr, to: Ipv6Addr, next: u8, body: &[u8], place: usize) -> Vec<u8> {
        frame(OTHER, from, to, next, body.to_vec(), place)
    }

    fn answer(payload: &[u8], ports: [u16; 2]) -> Vec<u8> {
        let length = u16::try_from(8 + payload.len()).unwrap();
        let body = [&[ports[0], ports[1], length, 0].map(u16::to_be_bytes).concat()[..], payload].concat();
        packet(ROUTER, SELF, UDP, &body, 6)
    }

    fn advertisement() -> Vec<u8> {
        packet(ROUTER, STATIONS, ICMP, &[134, 0, 0, 0, 64, 0x80, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0], 2)
    }

    #[test]
    fn headers_are_those_of_the_client_and_right() {
        let sent = udp(OWN, SELF, &[1, 2, 3]);
        assert_eq!(sent[..14], [0x33, 0x33, 0, 1, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd]);
        assert_eq!(sent[14..22], [0x60, 0, 0, 0, 0, 11, 17, 255]);
        assert_eq!(sent[54..60], [2, 34, 2, 35, 0, 11]);
        assert_eq!(sent[62..], [1, 2, 3]);
        let asked = router_solicitation(OWN, SELF);
        assert_eq!((&asked[..6], asked[54], asked.len()), (&[0x33, 0x33, 0, 0, 0, 2][..], 133, 70));
        let probe = neighbour_probe(OWN, "2001:db8::12:3456".parse().unwrap());
        assert_eq!((&probe[..6], probe[54]), (&[0x33, 0x33, 0xff, 0x12, 0x34, 0x56][..], 135));
        for frame in [&sent, &asked, &probe] {
            assert!(Packet::read(frame).unwrap().is_right());
            assert_eq!(read(frame, true, SELF), None);
        }
    }

    #[test]
    fn answers_and_advertisements_come_in() {
        let received = read(&answer(&[7, 1, 2, 3], [547, 546]), true, SELF).unwrap();
        assert_eq!(received, Received { from_mac: OTHER, from: IpAddr::V6(ROUTER), payload: vec![7, 1, 2, 3] });
        let received = read(&advertisement(), true, SELF).unwrap();
        assert!(is_advertisement(&received.payload));
        let mut padded = advertisement();
        padded.extend([9; 20]);
        assert_eq!(read(&padded, true, SELF).unwrap().payload.len(), 16);
    }

    #[test]
    fn nothing_that_is_wrong_is_read() {
        for whole in [answer(&[7, 1, 2, 3], [547, 546]), advertisement()] {
            for length in 0..whole.len() {
                assert_eq!(read(&whole[..length], true, SELF), None, "cut at {length}");
            }
            for at in 12..whole.len() {
                // Class and flow are not checked. No checksum covers them or the hop limit.
                let unseen = |bit: usize| (at == 14 && bit < 4) || (15..18).contains(&at);
                let is_udp = whole[20] == UDP;
                for bit in (0..8).filter(|bit| !(unseen(*bit) || at == 21 && is_udp)) {
                    let mut spoilt = whole.clone();
                    spoilt[at] ^= 1 << bit;
                    assert_eq!(read(&spoilt, true, SELF), None, "bit {bit} of byte {at}");
                }
            }
        }
        let hop_by_hop = packet(ROUTER, SELF, 0, &answer(&[7, 1, 2, 3], [547, 546])[54..], 6);
        let with = |from: Ipv6Addr, to: Ipv6Addr| packet(from, to, ICMP, &advertisement()[54..], 2);
        let global = "2001:db8::9".parse().unwrap();
        for (what, frame) in [
            ("another port", answer(&[7, 1, 2, 3], [547, 547])),
            ("a message of a client", answer(&[1, 1, 2, 3], [547, 546])),
            ("an advertisement of a router that a server sends", answer(&[134, 0, 0, 0], [547, 546])),
            ("no payload", answer(&[], [547, 546])),
            ("a payload without end", answer(&[7; LONGEST_RECEIVED + 1], [547, 546])),
            ("an extension header", hop_by_hop),
            ("a router beyond the link", with(global, STATIONS)),
            ("an advertisement for somebody else", with(ROUTER, global)),
        ] {
            assert_eq!(read(&frame, true, SELF), None, "{what}");
        }
        let mut forwarded = advertisement();
        forwarded[21] = 254;
        assert_eq!(read(&forwarded, true, SELF), None, "the frame has passed a router");
        assert_eq!(read(&answer(&[7, 1, 2, 3], [547, 546]), true, ROUTER), None, "for another station");
        // A sender on this machine has not computed the checksum yet.
        let mut unsummed = answer(&[7, 1, 2, 3], [547, 546]);
        unsummed[61] ^= 1;
        assert!(read(&unsummed, false, SELF).is_some());
    }

    #[test]
    fn stations_that_have_the_address_or_want_it() {
        let address: Ipv6Addr = "2001:db8::50".parse().unwrap();
        let conflicts = |frame: &[u8]| neighbour_conflicts(frame, true, OWN, address);
        assert!(conflicts(&neighbour_probe(OTHER, address)), "another station probes the address");
        assert!(!conflicts(&neighbour_probe(OWN, address)), "the client's own probe");
        assert!(!conflicts(&neighbour_probe(OTHER, "2001:db8::51".parse().unwrap())));
        let body = [&[136, 0, 0, 0, 0x20, 0, 0, 0], &address.octets()[..]].concat();
        let has = packet(address, STATIONS, ICMP, &body, 2);
        assert!(conflicts(&has), "another station has the address");
        let mut forwarded = has.clone();
        forwarded[21] = 64;
        assert!(!conflicts(&forwarded), "the frame comes from beyond the link");
        let mut spoilt = has.clone();
        spoilt[56] ^= 1;
        assert!(!conflicts(&spoilt));
        // A neighbour looks for the address, which was in use before.
        let body = [&[135, 0, 0, 0, 0, 0, 0, 0], &address.octets()[..]].concat();
        assert!(!conflicts(&packet(ROUTER, askers_of(address), ICMP, &body, 2)));
        for length in 0..has.len() {
            let _ = conflicts(&has[..length]);
        }
    }
}
