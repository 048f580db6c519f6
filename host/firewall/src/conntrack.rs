//! Connections that the kernel tracks. When the forward of a UDP port changes, the port's connections are forgotten.
//!
//! A UDP connection has no end. As long as packets come, the kernel sends them to the destination of the first packet,
//! even if new rules say otherwise. The kernel forgets a TCP connection at the first packet of a new connection.

use std::net::IpAddr;

use nix::errno::Errno;
use postern_netlink::{Attributes, NetlinkRequest, attribute};

use crate::{FirewallError, Nft, octets};

/// `NFNL_SUBSYS_CTNETLINK`, with `IPCTNL_MSG_CT_GET` and `_DELETE` (linux/netfilter/nfnetlink_conntrack.h).
const GET: u16 = 1 << 8 | 1;
const DELETE: u16 = 1 << 8 | 2;
/// `CTA_TUPLE_ORIG`, `_TUPLE_REPLY`, `_ID`, `_ZONE`, `_FILTER`.
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;
const FILTER: u16 = 25;
/// `CTA_TUPLE_IP`, `_PROTO`; in them `CTA_IP_V4_SRC`, `_V4_DST`, `_V6_SRC`, `_V6_DST`, `CTA_PROTO_NUM`, `_SRC_PORT`,
/// `_DST_PORT`.
const IP: u16 = 1;
const PROTO: u16 = 2;
const SOURCES: [u16; 2] = [1, 3];
const DESTINATIONS: [u16; 2] = [2, 4];
const PROTO_NUM: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;
/// `CTA_FILTER_ORIG_FLAGS`, and its bits for the protocol and the destination port.
const FILTER_ORIGINAL: u16 = 1;
const BY_PROTOCOL: u32 = 1 << 3;
const BY_PORT: u32 = 1 << 5;
const UDP: u8 = 17;
const NESTED: u16 = 1 << 15;
/// `NLM_F_ACK`.
const ACK: u16 = 4;

/// A tracked UDP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The destination that the first packet had: address and port.
    pub destination: (IpAddr, u16),
    /// Address and port of the answering end: the container, if there is a forward.
    pub answerer: (IpAddr, u16),
    /// The attributes that identify the connection to the kernel.
    name: Vec<u8>,
}

impl Flow {
    fn read(object: Attributes<'_>) -> Option<Self> {
        let original = object.first(ORIGINAL)?;
        let mut name = attribute(ORIGINAL | NESTED, original.value);
        for kind in [ID, ZONE] {
            name.extend(object.first(kind).map(|part| attribute(kind, part.value)).unwrap_or_default());
        }
        let reply = object.first(REPLY)?;
        Some(Self {
            destination: end(original.nested(), DESTINATIONS, DESTINATION_PORT)?,
            answerer: end(reply.nested(), SOURCES, SOURCE_PORT)?,
            name,
        })
    }
}

/// Returns address and port of one end; `None` if the protocol is not UDP.
fn end(tuple: Attributes<'_>, addresses: [u16; 2], port: u16) -> Option<(IpAddr, u16)> {
    let protocol = tuple.first(PROTO)?.nested();
    if protocol.first(PROTO_NUM)?.value != [UDP] {
        return None;
    }
    let port = protocol.first(port)?.value.try_into().ok().map(u16::from_be_bytes)?;
    let ip = tuple.first(IP)?.nested();
    let value = addresses.iter().find_map(|kind| ip.first(*kind))?.value;
    Some((octets::address(value)?, port))
}

/// Returns a message about connections of one family: `struct nfgenmsg` and attributes.
fn message(v6: bool, attributes: &[u8]) -> Vec<u8> {
    let family = if v6 { nix::libc::AF_INET6 } else { nix::libc::AF_INET };
    let mut message = vec![u8::try_from(family).unwrap_or_default(), 0, 0, 0];
    message.extend(attributes);
    message
}

/// Returns the attributes with which the kernel shows only UDP connections; with `port`, only connections of this port.
fn filter(port: Option<u16>) -> Vec<u8> {
    let mut proto = attribute(PROTO_NUM, &[UDP]);
    proto.extend(port.map(|port| attribute(DESTINATION_PORT, &port.to_be_bytes())).unwrap_or_default());
    let flags = BY_PROTOCOL | port.map_or(0, |_| BY_PORT);
    let mut attributes = attribute(ORIGINAL | NESTED, &attribute(PROTO | NESTED, &proto));
    attributes.extend(attribute(FILTER | NESTED, &attribute(FILTER_ORIGINAL, &flags.to_ne_bytes())));
    attributes
}

/// Makes the kernel forget tracked UDP connections of one family to these ports. A connection stays if `goes` is false
/// for it. Returns the number of forgotten connections.
///
/// # Errors
/// The kernel has no connection tracking or refuses, or the deadline passes.
pub fn forget_udp(
    nft: &mut Nft,
    v6: bool,
    ports: &[u16],
    goes: impl Fn(&Flow) -> bool,
) -> Result<usize, FirewallError> {
    let failed = |errno| FirewallError::errno("list", "tracked connections", errno);
    let one = match ports {
        [] => return Ok(0),
        [port] => Some(*port),
        _ => None,
    };
    let read = |answer: Attributes<'_>| Flow::read(answer);
    let flows = match nft.dump_raw(NetlinkRequest::raw(GET, 0, message(v6, &filter(one))), read) {
        // If the kernel refuses the filter, all connections are read. Kernels before 5.8 ignore the filter.
        Err(Errno::EINVAL | Errno::EOPNOTSUPP) => {
            nft.dump_raw(NetlinkRequest::raw(GET, 0, message(v6, &[])), read).map_err(failed)?
        }
        flows => flows.map_err(failed)?,
    };
    let ports: std::collections::HashSet<u16> = ports.iter().copied().collect();
    let mut forgotten = 0;
    for flow in flows.iter().filter(|flow| ports.contains(&flow.destination.1) && goes(flow)) {
        match nft.ask_raw(NetlinkRequest::raw(DELETE, ACK, message(v6, &flow.name))) {
            Ok(()) => forgotten += 1,
            // The connection ended meanwhile.
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(FirewallError::errno("forget", "a tracked connection", errno)),
        }
    }
    Ok(forgotten)
}
