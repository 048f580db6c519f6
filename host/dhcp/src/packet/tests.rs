//! Tests which frames the filter lets in, over a pair.

use super::*;
use crate::frame::{ALL, arp_probe, udp};
use crate::frame6;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::time::{Duration, Instant};

const OWN: MacBytes = [2, 0, 0, 0, 0, 1];
const OTHER: MacBytes = [2, 0, 0, 0, 0, 2];
const STRANGER: MacBytes = [2, 0, 0, 0, 0, 3];
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 5, 0, 7);
const ADDRESS6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);

/// Makes the links: `own` has the client's hardware address. The kernel itself sends no frames on these links. Returns
/// both indexes.
fn links(own: &str, other: &str) -> [u32; 2] {
    assert_eq!(std::env::var("POSTERN_PRIVATE").as_deref(), Ok("1"), "cargo's runner gives private namespaces");
    let script = format!(
        "ip link add {own} address 02:00:00:00:00:01 type veth peer name {other} address 02:00:00:00:00:02
         ip link set {own} addrgenmode none && ip link set {other} addrgenmode none
         ip link set {own} up && ip link set {other} up
         for link in {own} {other}; do until ip link show $link | grep -q 'state UP'; do sleep .01; done; done"
    );
    let made = Command::new("timeout").args(["9", "sh", "-euc", &script]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    [own, other].map(|name| nix::net::if_::if_nametoindex(name).unwrap())
}

/// An answer to the client, by DHCP.
fn answer() -> Vec<u8> {
    let mut payload = vec![0; 300];
    payload[0] = 2;
    payload[28..34].copy_from_slice(&OWN);
    let mut frame = udp((OTHER, ADDRESS), (ALL, Ipv4Addr::BROADCAST), &payload);
    frame[36..38].copy_from_slice(&68u16.to_be_bytes());
    frame
}

/// An answer to the client, by DHCPv6.
fn answer6() -> Vec<u8> {
    let mut frame = frame6::udp(OTHER, ADDRESS6, &[7, 1, 2, 3]);
    frame[56..58].copy_from_slice(&546u16.to_be_bytes());
    frame
}

fn tagged(frame: &[u8], vlan: u8) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, vlan], &frame[12..]].concat()
}

fn to(mac: MacBytes, frame: &[u8]) -> Vec<u8> {
    [&mac, &frame[6..]].concat()
}

/// Returns the next frame: its headers, and its length.
fn next(socket: &PacketSocket) -> Option<(Vec<u8>, usize)> {
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        if let Some(frame) = socket.receive().unwrap() {
            return Some(head(&frame.bytes));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

fn head(frame: &[u8]) -> (Vec<u8>, usize) {
    (frame[..16].to_vec(), frame.len())
}

/// Frames keep their order. So the frame that is received first shows that the filter dropped all frames before it.
#[test]
fn frames_for_others_and_of_other_vlans_stay_out() {
    let [own, other] = links("pf0", "pf1");
    let sender = PacketSocket::arp(other).unwrap();
    let group = frame6::multicast_of(ADDRESS6);
    let cases = [
        ("DHCP", PacketSocket::dhcp(own, OWN), answer(), ALL),
        ("ARP", PacketSocket::arp(own), arp_probe(OTHER, ADDRESS), ALL),
        ("DHCPv6", PacketSocket::dhcpv6(own), answer6(), group),
        ("neighbours", PacketSocket::neighbours(own, group), frame6::neighbour_probe(OTHER, ADDRESS6), group),
    ];
    for (what, socket, frame, all) in cases {
        let socket = socket.unwrap();
        let mut last = to(OWN, &frame);
        last.resize(last.len().max(60), 0);
        for unwanted in [
            tagged(&to(all, &frame), 7),
            tagged(&last, 7),
            tagged(&tagged(&last, 8), 7),
            to(STRANGER, &frame),
            to(if all == ALL { group } else { ALL }, &frame),
        ] {
            sender.send(&unwanted).unwrap();
        }
        // A tag with VLAN 0 has only a priority, and names no VLAN.
        for wanted in [to(all, &frame), last.clone()] {
            sender.send(&wanted).unwrap();
            assert_eq!(next(&socket), Some(head(&wanted)), "{what}");
            sender.send(&tagged(&wanted, 0)).unwrap();
            assert_eq!(next(&socket), Some(head(&wanted)), "{what}");
        }
        assert_eq!(socket.receive().unwrap(), None, "{what}");
    }
}
