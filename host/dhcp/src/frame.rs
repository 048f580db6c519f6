//! Ethernet frames of DHCP and ARP (`frame6` has those of IPv6). The service writes all headers, so a guest can't send to other ports, from another
//! address or with another protocol. Of what comes in, only headers are read here.

use std::net::{IpAddr, Ipv4Addr};

/// A hardware address.
pub type MacBytes = [u8; 6];

/// The hardware address of all stations.
pub const ALL: MacBytes = [0xff; 6];

/// The longest payload that is given to a guest, in bytes.
pub const LONGEST_RECEIVED: usize = 4096;

/// The length of an Ethernet header.
pub const ETHERNET: usize = 14;
const UDP: usize = 8;
const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_ARP: [u8; 2] = [0x08, 0x06];
const CLIENT: u16 = 68;
const SERVER: u16 = 67;

/// Whom a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The link's own hardware address.
    pub from_mac: MacBytes,
    /// The next hop.
    pub to_mac: MacBytes,
    /// The sender: unspecified without an address.
    pub from: Ipv4Addr,
    /// The receiver.
    pub to: Ipv4Addr,
}

/// Returns the frame for a payload, from the client's port to the server's.
pub fn udp(ends: &Ends, payload: &[u8]) -> Vec<u8> {
    let length = |header: usize| u16::try_from(header + payload.len()).unwrap_or(u16::MAX).to_be_bytes();
    let mut segment: Vec<u8> = [CLIENT.to_be_bytes(), SERVER.to_be_bytes(), length(UDP), [0, 0]].concat();
    segment.extend(payload);
    let pseudo = pseudo_header(ends.from, ends.to, length(UDP));
    // Zero means "no checksum" in UDP.
    let checksum = match checksum(&[&pseudo, &segment]) {
        0 => 0xffff,
        sum => sum,
    };
    segment.iter_mut().skip(6).zip(checksum.to_be_bytes()).for_each(|(to, from)| *to = from);

    // Version 4, 20 bytes; no fragments; a time to live of 64; UDP.
    let mut header: Vec<u8> = vec![0x45, 0];
    header.extend(length(20 + UDP));
    header.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    header.extend(ends.from.octets());
    header.extend(ends.to.octets());
    let sum = self::checksum(&[&header]);
    header.iter_mut().skip(10).zip(sum.to_be_bytes()).for_each(|(to, from)| *to = from);

    let mut frame = [&ends.to_mac[..], &ends.from_mac, &TYPE_IPV4].concat();
    frame.extend(header);
    frame.extend(segment);
    frame
}

/// A payload that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The hardware address of the sender or of a router.
    pub from_mac: MacBytes,
    /// The sender's address. Nothing proves it.
    pub from: IpAddr,
    /// The UDP payload.
    pub payload: Vec<u8>,
}

/// Reads a frame for the client's port. `None` if it is none, is a fragment, or has wrong lengths or checksums. With
/// `is_summed` false its UDP checksum is not yet there, because the sender is on this machine.
pub fn read_udp(frame: &[u8], is_summed: bool) -> Option<Received> {
    let (ethernet, packet) = frame.split_at_checked(ETHERNET)?;
    let (_, from_mac) = ethernet.split_at_checked(6)?;
    if from_mac.get(6..)? != TYPE_IPV4 {
        return None;
    }
    let from_mac: MacBytes = from_mac.get(..6)?.try_into().ok()?;
    let first = *packet.first()?;
    let header_length = usize::from(first & 0xf) * 4;
    let total = usize::from(word(packet, 2)?);
    if first >> 4 != 4 || header_length < 20 || total < header_length {
        return None;
    }
    // An Ethernet frame may have padding.
    let (header, segment) = packet.get(..total)?.split_at_checked(header_length)?;
    let is_fragment = word(header, 6)? & 0x3fff != 0;
    if is_fragment || *header.get(9)? != 17 || checksum(&[header]) != 0 {
        return None;
    }
    let address = |at: usize| -> Option<Ipv4Addr> { Some(<[u8; 4]>::try_from(header.get(at..at + 4)?).ok()?.into()) };
    let (from, to) = (address(12)?, address(16)?);
    let length = word(segment, 4)?;
    let segment = segment.get(..usize::from(length))?;
    if word(segment, 2)? != CLIENT {
        return None;
    }
    let sum = word(segment, 6)?;
    if is_summed && sum != 0 && checksum(&[&pseudo_header(from, to, length.to_be_bytes()), segment]) != 0 {
        return None;
    }
    let payload = segment.get(UDP..).filter(|payload| payload.len() <= LONGEST_RECEIVED)?.to_vec();
    Some(Received { from_mac, from: IpAddr::V4(from), payload })
}

/// Returns the frame that asks who has an address, without saying that the sender has one (RFC 5227, an ARP probe).
pub fn arp_probe(own: MacBytes, address: Ipv4Addr) -> Vec<u8> {
    let mut frame = [&ALL[..], &own, &TYPE_ARP].concat();
    // Ethernet, IPv4, their lengths, a request.
    frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(own);
    frame.extend([0; 4]);
    frame.extend([0; 6]);
    frame.extend(address.octets());
    frame
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

/// Returns the number of two bytes at a place.
pub fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn pseudo_header(from: Ipv4Addr, to: Ipv4Addr, length: [u8; 2]) -> Vec<u8> {
    [&from.octets()[..], &to.octets(), &[0, 17], &length].concat()
}

/// The checksum of RFC 1071 over parts of even length, but for the last.
pub fn checksum(parts: &[&[u8]]) -> u16 {
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

    fn ends() -> Ends {
        Ends { from_mac: OWN, to_mac: ALL, from: Ipv4Addr::UNSPECIFIED, to: Ipv4Addr::BROADCAST }
    }

    /// A frame as a server sends it: the same with the ports exchanged.
    fn answer(payload: &[u8]) -> Vec<u8> {
        let mut frame = udp(&Ends { from: Ipv4Addr::new(10, 5, 0, 1), ..ends() }, payload);
        frame.swap(35, 37);
        frame
    }

    #[test]
    fn headers_are_those_of_the_client_and_right() {
        let frame = udp(&ends(), &[1, 2, 3]);
        assert_eq!(frame[..14], [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 8, 0]);
        assert_eq!(frame[14..34], [0x45, 0, 0, 31, 0, 0, 0x40, 0, 64, 17, 0x3a, 0xcf, 0, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(frame[34..40], [0, 68, 0, 67, 0, 11]);
        assert_eq!(frame[42..], [1, 2, 3]);
        assert_eq!(read_udp(&frame, true), None, "it is for the server's port");
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
        // The sum of a sender on this machine is not there yet.
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
        assert!(arp_conflicts(&probe, OWN, address), "another one probes it");
        assert!(!arp_conflicts(&probe, OTHER, address), "its own probe");
        assert!(!arp_conflicts(&probe, OWN, Ipv4Addr::new(10, 5, 0, 8)), "a probe of another address");
        let mut reply = probe.clone();
        reply[21] = 2;
        reply[28..32].copy_from_slice(&address.octets());
        assert!(arp_conflicts(&reply, OWN, address), "another one has it");
        // A request of a neighbour that looks for it, because it was in use before.
        let mut request = probe;
        request[28..32].copy_from_slice(&[10, 5, 0, 9]);
        assert!(!arp_conflicts(&request, OWN, address));
        for length in 0..reply.len() - 4 {
            let _ = arp_conflicts(&reply[..length], OWN, address);
        }
    }
}
