//! Router advertisements (RFC 4861, 4.2): the default router, the prefixes on the link, and the link's MTU.

use super::is_usable;
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv6Addr};

/// The ICMPv6 type of a router advertisement. No message of DHCPv6 has this number.
pub const ADVERTISEMENT: u8 = 134;

/// The largest number of prefixes that are kept.
const MOST_PREFIXES: usize = 4;

/// The least MTU of IPv6.
const LEAST_MTU: u32 = 1280;

/// The data that router advertisements give about the link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The first router that offered to be a default router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<Ipv6Addr>,
    /// The prefixes on the link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<Ipv6Net>,
    /// The MTU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

impl Link {
    /// Takes an ICMPv6 message. An unreadable message changes nothing.
    pub fn note(&mut self, message: &[u8], from: IpAddr) {
        let IpAddr::V6(from) = from else { return };
        let Some((header, options)) = message.split_first_chunk::<16>() else { return };
        let [kind, code, _, _, _, _, high, low, ..] = *header;
        if kind != ADVERTISEMENT || code != 0 || !from.is_unicast_link_local() {
            return;
        }
        let Some(options) = split(options) else { return };
        if u16::from_be_bytes([high, low]) > 0 {
            self.router.get_or_insert(from);
        }
        for (kind, option) in options {
            match (kind, option) {
                (3, [length, flags, lifetime @ .., _, _, _, _, _, _, _, _]) if option.len() == 30 => {
                    let is_valid = lifetime.iter().take(4).any(|byte| *byte != 0);
                    if flags & 0x80 != 0 && is_valid {
                        self.add(*length, option);
                    }
                }
                (5, [_, _, a, b, c, d]) => {
                    self.mtu =
                        Some(u32::from_be_bytes([*a, *b, *c, *d])).filter(|mtu| (LEAST_MTU..=65_535).contains(mtu));
                }
                _ => {}
            }
        }
    }

    /// Adds a prefix on the link. The last 16 bytes of `option` are the prefix.
    fn add(&mut self, length: u8, option: &[u8]) {
        let Some(prefix) =
            option.last_chunk::<16>().and_then(|bytes| Ipv6Net::new(Ipv6Addr::from(*bytes), length).ok())
        else {
            return;
        };
        let prefix = prefix.trunc();
        let is_plain = prefix.prefix_len() > 0 && is_usable(prefix.network());
        if is_plain && !self.prefixes.contains(&prefix) && self.prefixes.len() < MOST_PREFIXES {
            self.prefixes.push(prefix);
        }
    }

    /// Returns an address with a prefix length: the length of the link's prefix that contains the address. Without such
    /// a prefix, only the address itself is on the link (RFC 8415, 18.2.10.1).
    pub fn place(&self, address: Ipv6Addr) -> Ipv6Net {
        let on_link = self.prefixes.iter().find(|prefix| prefix.contains(&address)).map_or(128, Ipv6Net::prefix_len);
        Ipv6Net::new(address, on_link).unwrap_or_else(|_| Ipv6Net::from(address))
    }
}

/// Splits options into pairs of type and data. Each option has its type, its length in units of 8 bytes, and its data.
/// `None` if an option has no length, or is cut off.
fn split(mut rest: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut options = Vec::new();
    while let [kind, units, after @ ..] = rest {
        let length = usize::from(*units).checked_mul(8)?.checked_sub(2)?;
        let (data, after) = after.split_at_checked(length)?;
        options.push((*kind, data));
        rest = after;
    }
    rest.is_empty().then_some(options)
}
