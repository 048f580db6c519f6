//! Ethernet frames of DHCP and ARP (`frame6` has the frames of IPv6). The service writes all headers, so a guest can't
//! send to other ports, from another address or with another protocol. The service reads only the headers of received
//! frames.

use std::net::{IpAddr, Ipv4Addr};

/// A hardware address.
pub type MacBytes = [u8; 6];

/// The hardware address of all stations.
pub const ALL: MacBytes = [0xff; 6];

/// The longest received payload that a guest gets, in bytes.
pub const LONGEST_RECEIVED: usize = 4096;

/// The length of an Ethernet header.
pub const ETHERNET: usize = 14;
const UDP_HEADER: usize = 8;

/// UDP's protocol number.
pub const UDP: u8 = 17;
const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_ARP: [u8; 2] = [0x08, 0x06];
const CLIENT: u16 = 68;
const SERVER: u16 = 67;

/// Sender or receiver of a packet: hardware address and IP address. A receiver has the hardware address of the next
/// hop. The IP address of a sender can be unspecified.
pub type End = (MacBytes, Ipv4Addr);

/// Returns the frame for a payload, from the client's port to the server's.
pub fn udp((from_mac, from): End, (to_mac, to): End, payload: &[u8]) -> Vec<u8> {
    let (from, to) = (from.octets(), to.octets());
    let segment = summed(&from, &to, UDP, segment(CLIENT, SERVER, payload), 6);
    // Version 4, 20 bytes; no fragments; a time to live of 64; UDP.
    let length = u16::try_from(20 + segment.len()).unwrap_or(u16::MAX).to_be_bytes();
    let mut header = [&[0x45, 0], &length[..], &[0, 0, 0x40, 0, 64, UDP, 0, 0], &from, &to].concat();
    let sum = checksum(&[&header]);
    put(&mut header, 10, sum);
    [&to_mac[..], &from_mac, &TYPE_IPV4, &header, &segment].concat()
}

/// Returns the UDP header for a payload, still without its checksum, and the payload.
pub fn segment(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(UDP_HEADER + payload.len()).unwrap_or(u16::MAX);
    let header = [from, to, length, 0].map(u16::to_be_bytes).concat();
    [&header[..], payload].concat()
}

/// Returns the body of a packet with its checksum at the given place. A checksum of zero is written as 0xffff: in UDP
/// zero means "no checksum".
pub fn summed(from: &[u8], to: &[u8], next: u8, mut body: Vec<u8>, place: usize) -> Vec<u8> {
    let sum = match sum_of(from, to, next, &body) {
        0 => 0xffff,
        sum => sum,
    };
    put(&mut body, place, sum);
    body
}

fn put(bytes: &mut [u8], place: usize, number: u16) {
    bytes.iter_mut().skip(place).zip(number.to_be_bytes()).for_each(|(to, from)| *to = from);
}

/// A received payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The hardware address of the sender or of a router.
    pub from_mac: MacBytes,
    /// The sender's address. It may be forged.
    pub from: IpAddr,
    /// The UDP payload.
    pub payload: Vec<u8>,
}

/// Reads a frame for the client's port. `None` if the frame has another port, is a fragment, or has wrong lengths or
/// checksums. With `is_summed` false, the frame has no UDP checksum yet, because the sender is on this machine.
pub fn read_udp(frame: &[u8], is_summed: bool) -> Option<Received> {
    let (ethernet, packet) = frame.split_at_checked(ETHERNET)?;
    let first = *packet.first()?;
    let header_length = usize::from(first & 0xf) * 4;
    let total = usize::from(word(packet, 2)?);
    if ethernet.get(12..)? != TYPE_IPV4 || first >> 4 != 4 || header_length < 20 || total < header_length {
        return None;
    }
    // An Ethernet frame may have padding.
    let (header, segment) = packet.get(..total)?.split_at_checked(header_length)?;
    let is_fragment = word(header, 6)? & 0x3fff != 0;
    if is_fragment || *header.get(9)? != UDP || checksum(&[header]) != 0 {
        return None;
    }
    let (from, to) = (header.get(12..16)?, header.get(16..20)?);
    let segment = segment.get(..usize::from(word(segment, 4)?))?;
    let is_right = !is_summed || word(segment, 6)? == 0 || sum_of(from, to, UDP, segment) == 0;
    if word(segment, 2)? != CLIENT || !is_right {
        return None;
    }
    let payload = segment.get(UDP_HEADER..).filter(|payload| payload.len() <= LONGEST_RECEIVED)?.to_vec();
    let from: [u8; 4] = from.try_into().ok()?;
    Some(Received { from_mac: ethernet.get(6..12)?.try_into().ok()?, from: from.into(), payload })
}

/// Returns an ARP probe (RFC 5227): a frame that asks who has an address, without an IP address of the sender.
pub fn arp_probe(own: MacBytes, address: Ipv4Addr) -> Vec<u8> {
    // Ethernet, IPv4, the lengths of both kinds of addresses, a request.
    let request = [0, 1, 8, 0, 6, 4, 0, 1];
    [&ALL[..], &own, &TYPE_ARP, &request, &own, &[0; 4], &[0; 6], &address.octets()].concat()
}

/// True if an ARP frame shows that another station has the address, or is about to take it (RFC 5227, 2.1.1).
pub fn arp_conflicts(frame: &[u8], own: MacBytes, address: Ipv4Addr) -> bool {
    let field = |at: usize, length: usize| frame.get(ETHERNET + at..ETHERNET + at + length);
    let is_arp = frame.get(12..14) == Some(&TYPE_ARP) && field(0, 6) == Some(&[0, 1, 8, 0, 6, 4]);
    let (sender, source, target) = (field(8, 6), field(14, 4), field(24, 4));
    let address = address.octets();
    let is_probe = source == Some(&[0; 4]) && target == Some(&address) && field(6, 2) == Some(&[0, 1]);
    is_arp && sender.is_some() && sender != Some(&own) && (source == Some(&address) || is_probe)
}

/// Returns the 16-bit number at a place.
pub fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Returns the checksum of a packet's body; zero if the body already has the right checksum. The pseudo header is that
/// of IPv6 (RFC 8200, 8.1). IPv4's pseudo header has the same words in another order, and so the same sum.
pub fn sum_of(from: &[u8], to: &[u8], next: u8, body: &[u8]) -> u16 {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
    checksum(&[from, to, &length, &[0, 0, 0, next], body])
}

/// The checksum of RFC 1071 over parts. All parts but the last have an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for pair in parts.iter().flat_map(|part| part.chunks(2)) {
        let (high, low) = (pair.first().copied().unwrap_or(0), pair.get(1).copied().unwrap_or(0));
        sum += u32::from(u16::from_be_bytes([high, low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: MacBytes = [2, 0, 0, 0, 0, 1];
    const OTHER: MacBytes = [2, 0, 0, 0, 0, 2];

    const STATIONS: End = (ALL, Ipv4Addr::BROADCAST);

    /// A server's frame: the client's frame with the ports exchanged.
    fn answer(payload: &[u8]) -> Vec<u8> {
        let mut frame = udp((OWN, Ipv4Addr::new(10, 5, 0, 1)), STATIONS, payload);
        frame.swap(35, 37);
        frame
    }

    #[test]
    fn headers_are_those_of_the_client_and_right() {
        let frame = udp((OWN, Ipv4Addr::UNSPECIFIED), STATIONS, &[1, 2, 3]);
        assert_eq!(frame[..14], [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 8, 0]);
        assert_eq!(frame[14..34], [0x45, 0, 0, 31, 0, 0, 0x40, 0, 64, 17, 0x3a, 0xcf, 0, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(frame[34..40], [0, 68, 0, 67, 0, 11]);
        assert_eq!(frame[42..], [1, 2, 3]);
        assert_eq!(read_udp(&frame, true), None, "the frame is for the server's port");
        let received = read_udp(&answer(b"abc"), true).unwrap();
        assert_eq!(
            received,
            Received { from_mac: OWN, from: Ipv4Addr::new(10, 5, 0, 1).into(), payload: b"abc".to_vec() }
        );
    }

    #[test]
    fn padding_is_cut_and_nothing_that_is_wrong_is_read() {
        let whole = answer(b"abc");
        let mut padded = whole.clone();
        padded.resize(80, 7);
        assert_eq!(read_udp(&padded, true).unwrap().payload, b"abc");
        for length in 0..whole.len() {
            assert_eq!(read_udp(&whole[..length], true), None, "cut at {length}");
        }
        for at in 12..whole.len() {
            for bit in 0..8 {
                let mut spoilt = whole.clone();
                spoilt[at] ^= 1 << bit;
                assert_eq!(read_udp(&spoilt, true), None, "bit {bit} of byte {at}");
            }
        }
        // A sender on this machine has not computed the checksum yet.
        let mut unsummed = whole.clone();
        unsummed[40] ^= 1;
        assert!(read_udp(&unsummed, false).is_some());
        let long = answer(&[0; LONGEST_RECEIVED + 1]);
        assert_eq!(read_udp(&long, true), None);
    }

    #[test]
    fn stations_that_have_the_address_or_want_it() {
        let address = Ipv4Addr::new(10, 5, 0, 7);
        let probe = arp_probe(OTHER, address);
        assert_eq!(probe.len(), 42);
        assert!(arp_conflicts(&probe, OWN, address), "another station probes the address");
        assert!(!arp_conflicts(&probe, OTHER, address), "the station's own probe");
        assert!(!arp_conflicts(&probe, OWN, Ipv4Addr::new(10, 5, 0, 8)), "a probe of another address");
        let mut reply = probe.clone();
        reply[21] = 2;
        reply[28..32].copy_from_slice(&address.octets());
        assert!(arp_conflicts(&reply, OWN, address), "another station has the address");
        // A neighbour with another address asks who has the address. The question is no conflict.
        let mut request = probe;
        request[28..32].copy_from_slice(&[10, 5, 0, 9]);
        assert!(!arp_conflicts(&request, OWN, address));
        for length in 0..reply.len() - 4 {
            let _ = arp_conflicts(&reply[..length], OWN, address);
        }
    }
}
