//! The matches and targets of an iptables rule that are no expressions of nf_tables. Their data have the kernel's
//! layout (linux/netfilter/xt_*.h, nf_nat.h).
//!
//! Numbers are in host byte order, unless a comment says otherwise. Data is padded to 8 bytes.

use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{ExpressionAttribute, Expressions, ListAttribute};
use postern_netlink::Attributes;
use postern_types::Transport;

use super::rule::{Is, Match, Target};
use crate::octets;

/// `XT_MAX_COMMENT_LEN`.
const COMMENT: usize = 256;
/// `XT_MULTIPORT_DESTINATION`.
const DESTINATION: u8 = 1;
/// `RTN_LOCAL` as a bit (linux/rtnetlink.h).
const LOCAL: u16 = 1 << 2;
/// `XT_CONNTRACK_STATE`.
const STATE: u16 = 1;
/// The offsets of flags, inverted flags and mask of states in `struct xt_conntrack_mtinfo3`. Each of these three fields
/// has a value below 16.
const MATCH_FLAGS: usize = 146;
const INVERTED_FLAGS: usize = 148;
const STATE_MASK: usize = 150;
/// `NF_NAT_RANGE_MAP_IPS`, `_PROTO_SPECIFIED`, `_PROTO_RANDOM_FULLY`.
const MAP_IPS: u32 = 1;
const PORTS: u32 = 2;
const RANDOM_FULLY: u32 = 0x10;

/// A match or a target in the kernel's form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extension {
    pub(super) name: String,
    pub(super) revision: u32,
    pub(super) data: Vec<u8>,
}

impl Extension {
    /// Returns the extension as an expression of nf_tables: `match` or `target`.
    pub(super) fn element(self, kind: &str) -> ListAttribute<ExpressionAttribute> {
        // NFTA_MATCH_NAME, _REV, _INFO; the same numbers for targets.
        let attributes = vec![
            DefaultNla::new(1, [self.name.as_bytes(), &[0]].concat()),
            DefaultNla::new(2, self.revision.to_be_bytes().to_vec()),
            DefaultNla::new(3, self.data),
        ];
        Expressions::Other { expression_type: kind.to_owned(), attributes }.into()
    }

    pub(super) fn read(data: Attributes<'_>) -> Option<Self> {
        let name = data.first(1)?.value;
        Some(Self {
            name: std::str::from_utf8(name.strip_suffix(&[0]).unwrap_or(name)).ok()?.to_owned(),
            revision: data.first(2)?.be32()?,
            data: data.first(3)?.value.to_vec(),
        })
    }
}

/// Data that is written number by number.
#[derive(Default)]
struct Data(Vec<u8>);

impl Data {
    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u8(self, value: u8) -> Self {
        self.bytes(&[value])
    }

    fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    /// Fills with zeroes up to this length.
    fn up_to(mut self, length: usize) -> Self {
        self.0.resize(length.max(self.0.len()), 0);
        self
    }

    fn of(self, name: &str, revision: u32) -> Extension {
        let length = self.0.len().next_multiple_of(8);
        Extension { name: name.to_owned(), revision, data: self.up_to(length).0 }
    }
}

/// Returns the bits for a source and for a destination, which are equal in all these structures.
fn both(source: bool, destination: bool) -> u8 {
    u8::from(source) | u8::from(destination) << 1
}

impl Match {
    /// Returns the match in the form of iptables 1.8.7. `None` if that version has no such form.
    pub(super) fn write(&self) -> Option<Extension> {
        let flag = |is: &bool| u8::from(!is);
        Some(match self {
            // The last byte ends the text.
            Self::Comment(text) => {
                let fits = text.len() < COMMENT && !text.as_bytes().contains(&0);
                return fits.then(|| Data(text.clone().into_bytes()).up_to(COMMENT).of("comment", 0));
            }
            Self::Ports { protocol, source, destination } => {
                let all = if *protocol == Transport::Sctp { 0 } else { u16::MAX };
                let range = |part: &&Option<Is<u16>>| part.map_or([0, all], |(_, port)| [port, port]);
                let data = |parts: [&Option<Is<u16>>; 2]| parts.iter().flat_map(range).fold(Data::default(), Data::u16);
                let is_not = |part: &Option<Is<u16>>| part.is_some_and(|(is, _)| !is);
                let inverted = both(is_not(source), is_not(destination));
                match protocol {
                    // An option, a mask of flags, and the flags come before the inversion byte.
                    Transport::Tcp => data([source, destination]).up_to(11).u8(inverted),
                    Transport::Udp => data([source, destination]).u8(inverted),
                    // No chunk types: each of the four entries begins with -1.
                    Transport::Sctp => data([destination, source])
                        .up_to(268)
                        .bytes(&[u8::MAX, 0, 0].repeat(4))
                        .up_to(284)
                        .u32(both(source.is_some(), destination.is_some()).into())
                        .u32(inverted.into()),
                }
                .of(protocol.name(), 0)
            }
            Self::DestinationPorts((is, ports)) => {
                let count = u8::try_from(ports.len()).ok().filter(|count| *count <= 15)?;
                let data = ports.iter().fold(Data::default().u8(DESTINATION).u8(count), |data, port| data.u16(*port));
                data.up_to(47).u8(flag(is)).of("multiport", 1)
            }
            Self::Mark((is, (mark, mask))) => Data::default().u32(*mark).u32(*mask).u8(flag(is)).of("mark", 1),
            Self::LocalAddress { source, destination } => {
                let part = |part: &Option<bool>| if part.is_some() { LOCAL } else { 0 };
                let inverted = both(*source == Some(false), *destination == Some(false));
                Data::default().u16(part(source)).u16(part(destination)).u32(inverted.into()).of("addrtype", 1)
            }
            Self::State((is, mask)) => Data::default()
                .up_to(MATCH_FLAGS)
                .u16(STATE)
                .u16(if *is { 0 } else { STATE })
                .u16(*mask)
                .up_to(168)
                .of("conntrack", 3),
            Self::Other(_) => return None,
        })
    }

    /// Reads a match. `None` if the match has further parts: the data must equal the data that would be written for the
    /// understood parts.
    pub(super) fn read(from: &Extension) -> Option<Self> {
        let data = from.data.as_slice();
        let read = match from.name.as_str() {
            "comment" => {
                let end = data.iter().position(|byte| *byte == 0)?;
                Self::Comment(std::str::from_utf8(data.get(..end)?).ok()?.to_owned())
            }
            "tcp" | "udp" | "sctp" => {
                let protocol = Transport::parse(&from.name)?;
                let (named, inverted) = match protocol {
                    Transport::Tcp => (u32::MAX, u32::from(*data.get(11)?)),
                    Transport::Udp => (u32::MAX, u32::from(*data.get(8)?)),
                    Transport::Sctp => (u32_at(data, 284)?, u32_at(data, 288)?),
                };
                let port = |at: usize, bit: u32| {
                    let (first, last) = (u16_at(data, at)?, u16_at(data, at + 2)?);
                    let is_any = named & bit == 0 || (first, last) == (0, u16::MAX);
                    Some((!is_any).then_some((inverted & bit == 0, first)))
                };
                let (source, destination) = if protocol == Transport::Sctp { (4, 0) } else { (0, 4) };
                Self::Ports { protocol, source: port(source, 1)?, destination: port(destination, 2)? }
            }
            "multiport" => {
                let count = usize::from(*data.get(1).filter(|count| **count > 0)?);
                let ports = (0..count).map(|index| u16_at(data, 2 + 2 * index)).collect::<Option<Vec<u16>>>()?;
                Self::DestinationPorts((*data.get(47)? == 0, ports))
            }
            "mark" => Self::Mark((*data.get(8)? == 0, (u32_at(data, 0)?, u32_at(data, 4)?))),
            "addrtype" => {
                let inverted = u32_at(data, 4)?;
                let part = |at: usize, bit: u32| Some((u16_at(data, at)? == LOCAL).then_some(inverted & bit == 0));
                match (part(0, 1)?, part(2, 2)?) {
                    (None, None) => return None,
                    (source, destination) => Self::LocalAddress { source, destination },
                }
            }
            "conntrack" => {
                let mask = u16_at(data, STATE_MASK).filter(|mask| (1..16).contains(mask))?;
                Self::State((u16_at(data, INVERTED_FLAGS)? == 0, mask))
            }
            _ => return None,
        };
        // Bytes after a comment's end have no meaning.
        let is_same = matches!(read, Self::Comment(_)) || read.write().as_ref() == Some(from);
        is_same.then_some(read)
    }
}

impl Target {
    /// Returns the target in the form of iptables 1.8.7. `None` for a verdict, or if that version has no such form.
    pub(super) fn write(&self, v6: bool) -> Option<Extension> {
        Some(match self {
            Self::Accept | Self::Drop | Self::Return | Self::Jump(_) | Self::Other(_) => return None,
            Self::SetMark(mark, mask) => Data::default().u32(*mark).u32(*mask).of("MARK", 2),
            Self::Dnat(address, port) => {
                let octets = Some(*address).filter(|address| address.is_ipv6() == v6).map(octets::of)?;
                let data = Data::default().u32(if port.is_some() { MAP_IPS | PORTS } else { MAP_IPS });
                let port = port.unwrap_or(0).to_be_bytes();
                data.bytes(&octets).up_to(20).bytes(&octets).up_to(36).bytes(&port).bytes(&port).up_to(44).of("DNAT", 2)
            }
            Self::Masquerade { random_fully } => {
                let flags = if *random_fully { RANDOM_FULLY } else { 0 };
                // IPv4 has the number of ranges before the range.
                match v6 {
                    false => Data::default().u32(1).u32(flags).up_to(20),
                    true => Data::default().u32(flags).up_to(40),
                }
                .of("MASQUERADE", 0)
            }
        })
    }

    /// Reads a target. `None` if the target has further parts, as in [`Match::read`].
    pub(super) fn read(from: &Extension, v6: bool) -> Option<Self> {
        let data = from.data.as_slice();
        let read = match from.name.as_str() {
            "MARK" => Self::SetMark(u32_at(data, 0)?, u32_at(data, 4)?),
            "DNAT" => {
                let address = octets::address(data.get(4..if v6 { 20 } else { 8 })?)?;
                let port = u16::from_be_bytes(<[u8; 2]>::try_from(data.get(36..38)?).ok()?);
                Self::Dnat(address, (u32_at(data, 0)? & PORTS != 0).then_some(port))
            }
            "MASQUERADE" => Self::Masquerade { random_fully: u32_at(data, if v6 { 0 } else { 4 })? == RANDOM_FULLY },
            _ => return None,
        };
        (read.write(v6).as_ref() == Some(from)).then_some(read)
    }
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes)
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes)
}
