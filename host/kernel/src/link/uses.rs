//! The users of a link in other namespaces, which this process cannot inspect: links stacked on the link, and readers
//! of a tap.
//!
//! The kernel does not list these users. But it refuses new links that conflict with an existing user (macvlan.c,
//! ipvlan_main.c, vlan.c and tun.c of `drivers/net` and `net/8021q`). So a refusal shows a user.

use super::{Link, inner};
use crate::error::{Result, Subject, unless};
use crate::netlink::Netlink;
use crate::random::{random_below, random_name};
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, VlanProtocol};
use nix::errno::Errno;
use nix::libc::ARPHRD_ETHER;
use postern_netlink::NetlinkRequest;
use postern_types::{IpvlanMode, MacvlanMode};
use rtnetlink::{LinkMessageBuilder, LinkUnspec, LinkVlan};
use std::fmt;
use std::ops::Range;
use std::thread::sleep;
use std::time::Duration;

/// The highest MTU that a VLAN can have.
const MOST_MTU: u32 = 65535;
/// The number of VLANs that one datagram requests.
const AT_ONCE: u16 = 64;
/// The number of VLANs that a link can have (IEEE 802.1Q).
const VLANS: u16 = 4095;
/// The beginning of the name of a throw-away link. The rest is random, because root in a container can give a device
/// any name, and return the device to the node with that name.
const PROBE: &str = "probe";
/// The number of attempts to find a free name for a throw-away link.
const MOST_NAMES: usize = 4;
/// The number of looks that must all find a use. A single look may find the throw-away link of another run, which is on
/// the device only for a moment.
const LOOKS: u32 = 6;
/// The largest number of VLAN ranges in a message.
const MOST_RANGES: usize = 8;

/// A use of a link that the link's own namespace does not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkUse {
    /// At least one macvlan or macvtap.
    Macvlan,
    /// An ipvlan, or another link that takes all frames of the link.
    Receiver,
    /// A VLAN with this number; true for a provider VLAN (802.1ad).
    Vlan(u16, bool),
    /// A program that has the tap open.
    Reader,
}

impl fmt::Display for LinkUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Macvlan => f.write_str("a macvlan is stacked on it"),
            Self::Receiver => f.write_str("an ipvlan or another link takes its frames"),
            Self::Vlan(id, false) => write!(f, "its VLAN {id} is in use"),
            Self::Vlan(id, true) => write!(f, "its VLAN {id} (802.1ad) is in use"),
            Self::Reader => f.write_str("a program has the tap open"),
        }
    }
}

impl LinkUse {
    /// Returns the words for these uses. Consecutive VLANs become a range. Only the first ranges are named: root in a
    /// container can make thousands of VLANs.
    pub fn words(uses: &[Self]) -> Vec<String> {
        let mut words = Vec::new();
        let mut ranges: Vec<(u16, u16, bool)> = Vec::new();
        for one in uses {
            let Self::Vlan(id, provider) = *one else {
                words.push(one.to_string());
                continue;
            };
            let follows =
                |(_, last, other): &&mut (u16, u16, bool)| *other == provider && last.checked_add(1) == Some(id);
            match ranges.last_mut().filter(follows) {
                Some((_, last, _)) => *last = id,
                None => ranges.push((id, id, provider)),
            }
        }
        for (first, last, provider) in ranges.iter().take(MOST_RANGES) {
            let kind = if *provider { " (802.1ad)" } else { "" };
            words.push(match first == last {
                true => Self::Vlan(*first, *provider).to_string(),
                false => format!("its VLANs {first} to {last}{kind} are in use"),
            });
        }
        let more: u32 =
            ranges.iter().skip(MOST_RANGES).map(|(first, last, _)| u32::from(last.saturating_sub(*first)) + 1).sum();
        if more > 0 {
            words.push(format!("{more} more of its VLANs are in use"));
        }
        words
    }
}

impl Netlink {
    /// Returns the uses of a link of this namespace that come from other namespaces. `own` are this namespace's links
    /// that are stacked on the link; these links are not reported. The link must not be a port of another link.
    ///
    /// # Errors
    /// The uses cannot be found: the link is no Ethernet link, is a macvlan or ipvlan itself, or has macvlans of this
    /// namespace. Then the link may be in use.
    pub fn uses_from_elsewhere(&self, link: &Link, own: &[Link]) -> Result<Vec<LinkUse>> {
        let subject = Subject { operation: "look for users of", object: &link.name };
        if link.hardware != ARPHRD_ETHER {
            return Err(subject.broken("it is no Ethernet link, so links stacked on it can't be found"));
        }
        if link.is_stacked() && link.kind != "vlan" {
            return Err(subject.broken("it is stacked on another link, and so links stacked on it are hidden"));
        }
        // A killed run may have left its throw-away link.
        let is_harmless = |other: &&Link| other.kind == "vlan" || is_probe(other, link.index);
        if let Some(other) = own.iter().find(|other| !is_harmless(other)) {
            let message = format!("the node has \"{}\" on it, which hides links of other namespaces", other.name);
            return Err(subject.broken(message));
        }
        let own_vlan = |own: &Link| own.vlan_id.map(|id| LinkUse::Vlan(id, own.is_provider_vlan));
        let own_vlans: Vec<LinkUse> = own.iter().filter_map(own_vlan).collect();
        let mut uses = Vec::new();
        uses.extend(self.beside_passthru(link)?);
        uses.extend(self.vlans_in_use(link, 0..VLANS)?.into_iter().filter(|found| !own_vlans.contains(found)));
        if link.kind == "tun" && self.has_reader(link)? {
            uses.push(LinkUse::Reader);
        }
        Ok(uses)
    }

    /// Stacks a throw-away macvlan in mode "passthru" on the link. This mode allows no other macvlan on the same link.
    /// The macvlan stays down, so that the link does not change.
    fn beside_passthru(&self, link: &Link) -> Result<Option<LinkUse>> {
        let mut found = None;
        for look in 0..LOOKS {
            // A random pause: two runs that look at the same time must not collide again.
            if look > 0 {
                sleep(Duration::from_millis(u64::from(look * random_below(8))));
            }
            found = self.look_beside_passthru(link)?;
            if found.is_none() {
                break;
            }
        }
        Ok(found)
    }

    fn look_beside_passthru(&self, link: &Link) -> Result<Option<LinkUse>> {
        for left in self.links_with(|other| is_probe(other, link.index))? {
            self.delete_link(left.index)?;
        }
        let passthru = inner::InnerLinkKind::Macvlan { parent: link.index, mode: MacvlanMode::Passthru, queue: None };
        let name = match self.create_probe(passthru) {
            Ok(name) => name,
            Err(error) if error.is(Errno::EINVAL) => return Ok(Some(LinkUse::Macvlan)),
            Err(error) if error.is(Errno::EBUSY) => return Ok(Some(LinkUse::Receiver)),
            // A kernel without macvlans may have ipvlans. A request without a parent makes no ipvlan: ENODEV says that
            // the kernel knows ipvlans.
            Err(error) if error.is(Errno::EOPNOTSUPP) => {
                let ipvlan = inner::InnerLinkKind::Ipvlan { parent: 0, mode: IpvlanMode::L2 };
                return match self.create_probe(ipvlan) {
                    Err(error) if error.is(Errno::EOPNOTSUPP) => Ok(None),
                    _ => Err(error),
                };
            }
            Err(error) => return Err(error),
        };
        if let Some(made) = self.link_by_name(&name)? {
            self.delete_link(made.index)?;
        }
        Ok(None)
    }

    /// Makes a throw-away link, and returns its name.
    fn create_probe(&self, kind: inner::InnerLinkKind) -> Result<String> {
        let mut names = 1;
        loop {
            let name = random_name(PROBE);
            match self.create_inner(&inner::InnerSpec { name: &name, kind, mtu: None, mac: None, namespace: None }) {
                Ok(()) => return Ok(name),
                // Another link has the name.
                Err(error) if error.is(Errno::EEXIST) && names < MOST_NAMES => names += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Requests each VLAN of the link with an MTU that its VLANs cannot have. The kernel checks first whether the VLAN
    /// is in use, and then refuses the MTU. So no VLAN is ever made. The request has no name, because another link with
    /// the same name would give the same error as a VLAN in use.
    fn vlans_in_use(&self, link: &Link, ids: Range<u16>) -> Result<Vec<LinkUse>> {
        let subject = Subject { operation: "look for VLANs of", object: &link.name };
        // The kernel refuses an MTU above `MOST_MTU` before it checks the VLAN.
        let is_high = link.mtu >= MOST_MTU;
        if is_high {
            self.set_mtu(link.index, MOST_MTU - 1)?;
        }
        let mtu = if is_high { MOST_MTU } else { link.mtu + 1 };
        let found = self.ask_for_vlans(subject, link.index, mtu, ids);
        if is_high {
            self.set_mtu(link.index, link.mtu)?;
        }
        found
    }

    fn ask_for_vlans(&self, subject: Subject<'_>, index: u32, mtu: u32, ids: Range<u16>) -> Result<Vec<LinkUse>> {
        let mut found = Vec::new();
        for protocol in [VlanProtocol::Ieee8021Q, VlanProtocol::Ieee8021Ad] {
            let ask = |id: u16| {
                let link = LinkMessageBuilder::<LinkVlan>::new_with_info_kind(InfoKind::Vlan).id(id).link(index);
                let link = link.protocol(protocol).mtu(mtu).build();
                NetlinkRequest::new(&RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK)
            };
            // The first answer tells if the kernel and the link support VLANs at all.
            let mut first = ids.start;
            while first < ids.end {
                let last = if first == ids.start { first + 1 } else { ids.end.min(first + AT_ONCE) };
                let requests: Vec<NetlinkRequest> = (first..last).map(ask).collect();
                for (id, errno) in (first..last).zip(self.answers(subject, &requests)?) {
                    match Errno::from_raw(errno) {
                        Errno::EINVAL => {}
                        Errno::EEXIST => found.push(LinkUse::Vlan(id, protocol == VlanProtocol::Ieee8021Ad)),
                        Errno::EOPNOTSUPP => return Ok(found),
                        other => return Err(subject.failed(other)),
                    }
                }
                first = last;
            }
        }
        Ok(found)
    }

    /// True if a program has the tap open. Without such a program, the kernel refuses to switch the tap's carrier on.
    fn has_reader(&self, link: &Link) -> Result<bool> {
        if link.disabled_queues.is_some_and(|queues| queues > 0) {
            return Ok(true);
        }
        let on = |message: LinkMessageBuilder<LinkUnspec>| message.append_extra_attribute(LinkAttribute::Carrier(1));
        Ok(unless(&[Errno::EPERM], self.change("switch carrier on of", link.index, on))?.is_some())
    }

    /// True if the VLAN of a link is in use in any namespace.
    pub fn has_vlan(&self, link: &Link, id: u16) -> Result<bool> {
        Ok(self.vlans_in_use(link, id..id.saturating_add(1))?.contains(&LinkUse::Vlan(id, false)))
    }
}

/// True if `other` is a throw-away link on the link of this index: of another run, or of a killed run.
fn is_probe(other: &Link, index: u32) -> bool {
    other.kind == "macvlan"
        && other.macvlan_mode == Some(MacvlanMode::Passthru)
        && other.peer_index == Some(index)
        && other.peer_netnsid.is_none()
        && other.name.text().is_some_and(|name| name.starts_with(PROBE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_have_words() {
        assert_eq!(LinkUse::Vlan(7, true).to_string(), "its VLAN 7 (802.1ad) is in use");
        assert_eq!(LinkUse::Reader.to_string(), "a program has the tap open");
    }

    #[test]
    fn many_vlans_are_few_words() {
        let vlans = |ids: &[u16], provider| ids.iter().map(move |id| LinkUse::Vlan(*id, provider)).collect::<Vec<_>>();
        let uses = [vlans(&[1, 2, 3, 7], false), vec![LinkUse::Reader], vlans(&[8], true)].concat();
        assert_eq!(
            LinkUse::words(&uses),
            [
                "a program has the tap open",
                "its VLANs 1 to 3 are in use",
                "its VLAN 7 is in use",
                "its VLAN 8 (802.1ad) is in use"
            ]
        );
        let odd: Vec<u16> = (0..VLANS).filter(|id| id % 2 == 1).collect();
        let words = LinkUse::words(&vlans(&odd, false));
        assert_eq!(words.len(), MOST_RANGES + 1);
        assert_eq!(words.last().unwrap(), "2039 more of its VLANs are in use");
        assert!(LinkUse::words(&[]).is_empty());
    }
}
