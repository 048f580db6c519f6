//! All settings of a link that rtnetlink shows. A snapshot of the settings is compared later, attribute by attribute.
//! So a change of an unknown setting is noticed too.

use super::{AF_INET6, HEADER, Link};
use crate::error::{Result, Subject, unless};
use crate::netlink::Netlink;
use netlink_packet_core::DefaultNla;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkFlags};
use nix::errno::Errno;
use nix::libc::{self, IFLA_AF_SPEC, IFLA_INFO_DATA, IFLA_LINKINFO, IFLA_VFINFO_LIST};
use postern_netlink::{Attributes, attribute, u32_at};
use rtnetlink::LinkUnspec;
use std::collections::BTreeMap;

/// The key of the flags in a snapshot: `IFLA_UNSPEC` is no attribute.
const FLAGS: u16 = 0;
/// The flags that a user of the namespace can set (`__dev_change_flags` of the kernel), without the flags in [`Link`].
const SETTABLE: u32 = (libc::IFF_DEBUG
    | libc::IFF_NOTRAILERS
    | libc::IFF_NOARP
    | libc::IFF_DYNAMIC
    | libc::IFF_MULTICAST
    | libc::IFF_PORTSEL
    | libc::IFF_AUTOMEDIA)
    .cast_unsigned();

const IFLA_VF_STATS: u16 = 8;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;

/// What to do about an attribute that differs from its snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The attribute can be set to its old value.
    PutBack(&'static str),
    /// The attribute is no setting of a namespace, or other code compares it.
    NoSetting,
    /// No request restores the attribute.
    Lasting(&'static str),
    /// Postern does not know the attribute.
    Unknown,
}

impl Treatment {
    /// Returns the treatment of an attribute (`IFLA_*` of linux/if_link.h).
    #[must_use]
    pub fn of(attribute: u16) -> Self {
        match attribute {
            FLAGS => Self::PutBack("its flags (ARP, multicast, …)"),
            2 => Self::PutBack("its broadcast address"),
            17 => Self::PutBack("its link mode (dormant)"),
            IFLA_AF_SPEC => Self::PutBack("its way to make IPv6 addresses"),
            27 => Self::PutBack("its group"),
            39 => Self::PutBack("its protocol state (protodown)"),
            40 => Self::PutBack("its largest number of GSO segments"),
            41 => Self::PutBack("its largest GSO packet"),
            58 => Self::PutBack("its largest GRO packet"),
            63 => Self::PutBack("its largest GSO packet of IPv4"),
            64 => Self::PutBack("its largest GRO packet of IPv4"),
            8 | 9 | 14 | 15 => Self::Lasting("its hardware settings (cost, priority, map, weight)"),
            21 => Self::Lasting("its number of virtual functions"),
            // `IFLA_VF_PORTS` and `IFLA_PORT_SELF` are settings of the switch in the card.
            IFLA_VFINFO_LIST | 24 | 25 => Self::Lasting("the settings of its virtual functions"),
            31 | 32 => Self::Lasting("its number of queues"),
            IFLA_LINKINFO => Self::Lasting("the settings of its kind"),
            55 => Self::Lasting("its reasons for protodown"),
            // `Link` has address, MTU, queue length, alias, other names, XDP, master and flags of reception.
            1 | 4 | 10 | 13 | 20 | 43 | 52
            // The link's name and the places of its other end.
            | 3 | 5 | 19 | 28 | 37 | 45 | 46 | 49
            // The queueing discipline, which a move of the link removes.
            | 6
            // States and counters.
            | 7 | 16 | 23 | 30 | 33 | 35 | 44 | 47 | 48 | 61
            // Limits and identity, which the driver sets.
            | 34 | 36 | 38 | 42 | 50 | 51 | 54 | 56 | 57 | 59 | 60 | 62 | 65..=69 => Self::NoSetting,
            _ => Self::Unknown,
        }
    }
}

/// A snapshot: attributes and their values.
pub type Settings = BTreeMap<u16, Vec<u8>>;

impl Netlink {
    /// Returns a link, and its settings that are not in [`Link`], at one moment. `None` if the link is gone.
    pub fn link_with_settings(&self, index: u32) -> Result<Option<(Link, Settings)>> {
        // Without `Vf` the kernel does not list virtual functions, and does not tell their number.
        let mask = LinkAttribute::ExtMask(vec![LinkExtentMask::Vf, LinkExtentMask::SkipStats]);
        let message = LinkUnspec::new_with_index(index).append_extra_attribute(mask).build();
        let subject = Subject { operation: "look up settings of link", object: &index };
        let both = |payload: &[u8]| Some((Link::decode(payload)?, decode(payload)?));
        unless(&[Errno::ENODEV], self.get(subject, &RouteNetlinkMessage::GetLink(message), both))
    }

    /// Sets one setting to a value of a snapshot.
    ///
    /// # Errors
    /// The driver's refusal; `ENODEV` if the link is missing.
    pub fn put_back(&self, index: u32, attribute: u16, value: &[u8]) -> Result<()> {
        let mut message = LinkUnspec::new_with_index(index).build();
        if attribute == FLAGS {
            message.header.flags = LinkFlags::from_bits_retain(u32_at(value, 0).unwrap_or_default());
            message.header.change_mask = LinkFlags::from_bits_retain(SETTABLE);
        } else {
            message.attributes.push(LinkAttribute::Other(DefaultNla::new(attribute, value.to_vec())));
        }
        let subject = Subject { operation: "put settings back of", object: &format_args!("link {index}") };
        self.acknowledged(subject, &RouteNetlinkMessage::SetLink(message), 0)
    }
}

fn decode(payload: &[u8]) -> Option<Settings> {
    let flags = u32_at(payload, 8)? & SETTABLE;
    let mut settings = Settings::from([(FLAGS, flags.to_ne_bytes().to_vec())]);
    for attribute in Attributes(payload.get(HEADER..)?).iter() {
        if Treatment::of(attribute.kind) == Treatment::NoSetting {
            continue;
        }
        let value = match attribute.kind {
            // The data of the link's own kind are kept, without the data of its master's kind.
            IFLA_LINKINFO => {
                attribute.nested().first(IFLA_INFO_DATA).map(|data| data.value.to_vec()).unwrap_or_default()
            }
            IFLA_VFINFO_LIST => virtual_functions(attribute.nested()),
            IFLA_AF_SPEC => {
                let inet6 = attribute.nested().first(AF_INET6);
                let mode = inet6.and_then(|inet6| inet6.nested().first(IFLA_INET6_ADDR_GEN_MODE)?.u8());
                mode.map(generation).unwrap_or_default()
            }
            _ => attribute.value.to_vec(),
        };
        settings.insert(attribute.kind, value);
    }
    Some(settings)
}

/// Returns the settings of virtual functions, in the kernel's order. The settings of each function begin with its
/// number. Before Linux 6.5 the settings include counters, with any mask.
fn virtual_functions(list: Attributes<'_>) -> Vec<u8> {
    let settings = list.iter().flat_map(|function| function.nested().iter());
    let mut bytes = Vec::new();
    for setting in settings.filter(|setting| setting.kind != IFLA_VF_STATS) {
        bytes.extend(setting.kind.to_ne_bytes());
        bytes.extend(setting.value);
    }
    bytes
}

/// Returns the value of `IFLA_AF_SPEC` that sets only this mode.
fn generation(mode: u8) -> Vec<u8> {
    attribute(AF_INET6, &attribute(IFLA_INET6_ADDR_GEN_MODE, &[mode]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_that_nobody_knows_is_kept_and_told() {
        let mut message = vec![0; HEADER];
        message[8..12].copy_from_slice(&(SETTABLE | 1).to_ne_bytes());
        message.extend(attribute(3, b"eth0\0"));
        message.extend(attribute(27, &7_u32.to_ne_bytes()));
        message.extend(attribute(4000, &[9]));
        message.extend(attribute(IFLA_AF_SPEC, &generation(1)));
        let settings = decode(&message).unwrap();
        let keys: Vec<u16> = settings.keys().copied().collect();
        assert_eq!(keys, [FLAGS, IFLA_AF_SPEC, 27, 4000]);
        assert_eq!(settings[&FLAGS], SETTABLE.to_ne_bytes());
        assert_eq!(settings[&IFLA_AF_SPEC], generation(1));
        assert_eq!(Treatment::of(4000), Treatment::Unknown);
        for end in 0..message.len() {
            let _ = decode(&message[..end]);
        }
    }

    #[test]
    fn settings_of_virtual_functions_count_and_their_counters_do_not() {
        let of = |mac: u8, packets: u8| {
            let function =
                [attribute(1, &[0, 0, 0, 0, mac]), attribute(IFLA_VF_STATS, &attribute(0, &[packets]))].concat();
            let list = attribute(IFLA_VFINFO_LIST, &[attribute(1, &function), attribute(1, &function)].concat());
            decode(&[vec![0; HEADER], list].concat()).unwrap()
        };
        assert_eq!(of(1, 1), of(1, 2));
        assert_ne!(of(1, 1), of(2, 1));
        assert!(matches!(Treatment::of(IFLA_VFINFO_LIST), Treatment::Lasting(_)));
    }
}
