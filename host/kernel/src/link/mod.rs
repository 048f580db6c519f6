//! Links (`rtnetlink(7)`, `RTM_*LINK`; attributes of `linux/if_link.h`): finding and changing them. Each kind of link
//! that can be made has its own file.

mod bridge;
mod inner;
mod settings;
mod show;
mod uses;
mod veth;

pub use inner::{InnerLinkKind, InnerSpec};
pub use settings::{Settings, Treatment};
pub use show::{BusDevice, Link};
pub use uses::LinkUse;
pub use veth::VethSpec;

use crate::error::{Result, Subject, unless};
use crate::netlink::Netlink;
use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL, Parseable};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage, LinkXdp, Prop};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use nix::errno::Errno;
use nix::libc::{self, IFLA_ALT_IFNAME, IFLA_IFALIAS, IFLA_IFNAME};
use postern_netlink::NetlinkRequest;
use postern_types::LinkName;
use rtnetlink::{LinkMessageBuilder, LinkUnspec};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Length of `struct ifinfomsg`.
const HEADER: usize = size_of::<libc::ifinfomsg>();
/// `AF_INET6` as the type of an attribute in `IFLA_AF_SPEC`.
const AF_INET6: u16 = libc::AF_INET6 as u16;
/// The modes of XDP programs: in the network stack, in the driver, in the hardware (linux/if_link.h).
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const XDP_FLAGS_HW_MODE: u32 = 1 << 3;
/// The most alternative names in one request. The list's length in bytes is a number of 16 bits.
const NAMES_AT_ONCE: usize = 128;
/// The room for an alternative name, in bytes, including the final zero byte.
const ALTIFNAMSIZ: usize = 128;

/// True if a link can have this name. The conditions are those of the kernel's `dev_valid_name`. `%` is refused too,
/// because the kernel would replace it with a number. The text form of a name that is no UTF-8 ([`LinkName`]) has `%`,
/// so it is refused too.
pub(crate) fn is_link_name(name: impl AsRef<[u8]>) -> bool {
    let name = name.as_ref();
    (1..libc::IFNAMSIZ).contains(&name.len())
        && !matches!(name, b"." | b"..")
        && !name.iter().any(|b| matches!(b, 0 | b'/' | b':' | b'%' | 0x0b) || b.is_ascii_whitespace())
}

/// Refuses a name that no link can have.
pub(crate) fn check_name(subject: Subject<'_>, name: impl AsRef<[u8]>) -> Result<()> {
    if is_link_name(name) { Ok(()) } else { Err(subject.invalid("no link can have this name")) }
}

impl Netlink {
    /// Returns the link with this name. The request has only the name, so the cost does not grow with the number of
    /// links. As everywhere in the kernel, an alternative name finds the link too (`ip link property`); [`Link::name`]
    /// is the main name.
    pub fn link_by_name(&self, name: impl AsRef<[u8]>) -> Result<Option<Link>> {
        let name = LinkName::new(name.as_ref());
        if !is_link_name(&name) {
            return Ok(None);
        }
        let message = LinkMessageBuilder::<LinkUnspec>::new().append_extra_attribute(main_name(&name));
        self.one_link(Subject { operation: "look up link", object: &name }, message)
    }

    /// Works as [`Netlink::link_by_name`], for a name that an operator wrote: an alternative name may have up to 127
    /// bytes.
    pub fn link_by_any_name(&self, name: &str) -> Result<Option<Link>> {
        if name.len() < libc::IFNAMSIZ {
            return self.link_by_name(name);
        }
        if name.len() >= ALTIFNAMSIZ || name.contains(['\0', '%']) {
            return Ok(None);
        }
        let other = LinkAttribute::Other(other_name(name));
        let message = LinkMessageBuilder::<LinkUnspec>::new().append_extra_attribute(other);
        self.one_link(Subject { operation: "look up link", object: &name }, message)
    }

    /// Returns the link with this index.
    pub fn link_by_index(&self, index: u32) -> Result<Option<Link>> {
        // The kernel can't answer a request with index 0 and no name.
        if index == 0 {
            return Ok(None);
        }
        self.one_link(Subject { operation: "look up link", object: &index }, LinkUnspec::new_with_index(index))
    }

    /// Returns the number that this socket's namespace has for `namespace` ([`Link::peer_netnsid`]). `None` if no link
    /// has needed a number yet. The request is `RTM_GETNSID` of rtnetlink(7).
    pub fn namespace_number(&self, namespace: BorrowedFd<'_>) -> Result<Option<i32>> {
        let mut question = NsidMessage::default();
        question.attributes.push(NsidAttribute::Fd(u32::try_from(namespace.as_raw_fd()).unwrap_or(u32::MAX)));
        let subject = Subject { operation: "look up number of", object: &"namespace" };
        let number = self.get(subject, &RouteNetlinkMessage::GetNsId(question), |payload| {
            let answer = NsidMessage::parse(payload).ok()?;
            answer.attributes.iter().find_map(|attribute| match attribute {
                NsidAttribute::Id(number) => Some(*number),
                _ => None,
            })
        })?;
        // `NETNSA_NSID_NOT_ASSIGNED` of linux/net_namespace.h.
        Ok(Some(number).filter(|number| *number >= 0))
    }

    fn one_link(&self, subject: Subject<'_>, message: LinkMessageBuilder<LinkUnspec>) -> Result<Option<Link>> {
        let message = RouteNetlinkMessage::GetLink(message.append_extra_attribute(without_statistics()).build());
        unless(&[Errno::ENODEV], self.get(subject, &message, Link::decode))
    }

    /// Returns all links of the namespace.
    pub fn links(&self) -> Result<Vec<Link>> {
        self.links_with(|_| true)
    }

    /// Returns the links of the namespace for which `wanted` is true. Other links take no memory here: root in a
    /// container can make very many links.
    pub fn links_with(&self, wanted: impl Fn(&Link) -> bool) -> Result<Vec<Link>> {
        self.list(LinkMessageBuilder::<LinkUnspec>::new(), wanted)
    }

    /// Returns the links of the namespace that are ports of a link. The kernel selects the ports.
    pub fn ports(&self, master: u32) -> Result<Vec<Link>> {
        self.list(LinkMessageBuilder::<LinkUnspec>::new().controller(master), |link| link.master == Some(master))
    }

    fn list(&self, filter: LinkMessageBuilder<LinkUnspec>, wanted: impl Fn(&Link) -> bool) -> Result<Vec<Link>> {
        let message = filter.append_extra_attribute(without_statistics()).build();
        let subject = Subject { operation: "list", object: &"links" };
        self.dump(subject, NetlinkRequest::new(&RouteNetlinkMessage::GetLink(message), 0), |payload| {
            Some(Some(Link::decode(payload)?).filter(|link| wanted(link)))
        })
    }

    /// Sets the link up.
    ///
    /// # Errors
    /// `ENODEV` if no link has the index; errors of the link's driver, such as `ENOTCONN` for a veth without a peer.
    pub fn set_up(&self, index: u32) -> Result<()> {
        self.change("set up", index, LinkMessageBuilder::up)
    }

    /// Sets the link down.
    pub fn set_down(&self, index: u32) -> Result<()> {
        self.change("set down", index, LinkMessageBuilder::down)
    }

    /// Switches promiscuous mode (`IFF_PROMISC`).
    pub fn set_promisc(&self, index: u32, on: bool) -> Result<()> {
        self.change("set promiscuous mode of", index, |link| link.promiscuous(on))
    }

    /// Switches the reception of all multicast frames (`IFF_ALLMULTI`).
    pub fn set_allmulti(&self, index: u32, on: bool) -> Result<()> {
        self.change("set multicast mode of", index, |link| link.allmulticast(on))
    }

    /// Sets the length of the queue, in packets.
    ///
    /// # Errors
    /// `ENODEV` if no link has the index, `ERANGE` for a length that the kernel can't keep.
    pub fn set_tx_queue_length(&self, index: u32, length: u32) -> Result<()> {
        self.change("set queue length of", index, |link| link.txqueuelen(length))
    }

    /// Sets the link-layer address. A bridge then keeps this address, instead of taking the lowest address of its
    /// ports.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` for an address that is not unicast, `ENODEV` if the link is missing.
    pub fn set_mac(&self, index: u32, mac: [u8; 6]) -> Result<()> {
        self.change("set address of", index, |link| link.address(mac.to_vec()))
    }

    /// Makes the link a port of another link, or of no link.
    ///
    /// # Errors
    /// `ENODEV` if the link is missing, `EINVAL` if the master takes no ports.
    pub fn set_master(&self, index: u32, master: Option<u32>) -> Result<()> {
        self.change("set master of", index, |link| link.controller(master.unwrap_or(0)))
    }

    /// Creates a link of this name. Refuses a name that no link can have.
    pub(crate) fn create(&self, subject: Subject<'_>, name: &str, link: LinkMessage) -> Result<()> {
        check_name(subject, name)?;
        self.acknowledged(subject, &RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)
    }

    fn change(
        &self,
        operation: &'static str,
        index: u32,
        change: impl FnOnce(LinkMessageBuilder<LinkUnspec>) -> LinkMessageBuilder<LinkUnspec>,
    ) -> Result<()> {
        let message = RouteNetlinkMessage::SetLink(change(LinkUnspec::new_with_index(index)).build());
        self.acknowledged(Subject { operation, object: &format_args!("link {index}") }, &message, 0)
    }

    /// Deletes the link. The peer of a veth goes too. False if the link was gone already.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a link that can't be deleted (`lo`, physical links).
    pub fn delete_link(&self, index: u32) -> Result<bool> {
        // With index 0 the kernel would select the link by other attributes, and the request has none.
        if index == 0 {
            return Ok(false);
        }
        let message = RouteNetlinkMessage::DelLink(LinkUnspec::new_with_index(index).build());
        let subject = Subject { operation: "delete", object: &format_args!("link {index}") };
        Ok(unless(&[Errno::ENODEV], self.acknowledged(subject, &message, 0))?.is_some())
    }

    /// Moves the link into another namespace, with this name and this alias. An empty alias removes the alias. The
    /// moved link is down, without addresses and routes. One message does the whole move, so no process sees the link
    /// half moved.
    ///
    /// # Errors
    /// `EEXIST` if a name of the link is taken in the other namespace. `EINVAL` for a link that cannot be moved (`lo`,
    /// a bridge) and for a name that no link can have. `ENODEV` if the link is missing.
    pub fn hand_over(&self, index: u32, namespace: BorrowedFd<'_>, name: &LinkName, alias: &LinkName) -> Result<()> {
        check_name(Subject { operation: "move", object: name }, name)?;
        self.change("move", index, |link| {
            let link = link.setns_by_fd(namespace.as_raw_fd()).down();
            link.append_extra_attribute(main_name(name)).append_extra_attribute(self::alias(alias))
        })
    }

    /// Sets the alias. An empty alias removes the alias.
    pub fn set_alias(&self, index: u32, alias: &LinkName) -> Result<()> {
        self.change("set alias of", index, |link| link.append_extra_attribute(self::alias(alias)))
    }

    /// Sets the MTU, in bytes.
    ///
    /// # Errors
    /// `EINVAL` for an MTU that the driver refuses, `ENODEV` if the link is missing.
    pub fn set_mtu(&self, index: u32, mtu: u32) -> Result<()> {
        self.change("set MTU of", index, |link| link.mtu(mtu))
    }

    /// Removes the XDP programs from the link. A link can have a program in each mode, and each message removes the
    /// program of one mode.
    ///
    /// # Errors
    /// `ENODEV` if the link is missing, `EBUSY` if a process attached a program by a descriptor.
    pub fn remove_xdp(&self, index: u32) -> Result<()> {
        for mode in [XDP_FLAGS_SKB_MODE, XDP_FLAGS_DRV_MODE, XDP_FLAGS_HW_MODE] {
            let none = LinkAttribute::Xdp(vec![LinkXdp::Fd(-1), LinkXdp::Flags(mode)]);
            self.change("take XDP off", index, |link| link.append_extra_attribute(none))?;
        }
        Ok(())
    }

    /// Adds alternative names of the link, or removes them.
    ///
    /// # Errors
    /// `EEXIST` if a name is taken, `ENOENT` if the link lacks a name, `ENODEV` if the link is missing.
    pub fn change_other_names(&self, index: u32, names: &[LinkName], add: bool) -> Result<()> {
        let subject = Subject { operation: "change alternative names of", object: &format_args!("link {index}") };
        for names in names.chunks(NAMES_AT_ONCE) {
            let names = names.iter().map(|name| Prop::Other(other_name(name))).collect();
            let link = LinkUnspec::new_with_index(index).append_extra_attribute(LinkAttribute::PropList(names)).build();
            match add {
                true => {
                    self.acknowledged(subject, &RouteNetlinkMessage::NewLinkProp(link), NLM_F_CREATE | NLM_F_EXCL)?;
                }
                false => self.acknowledged(subject, &RouteNetlinkMessage::DelLinkProp(link), 0)?,
            }
        }
        Ok(())
    }

    /// Gives the link another name; the link must be down.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken, `EINVAL` if no link can have the name, `ENODEV` if the link is missing.
    pub fn rename(&self, index: u32, name: &LinkName) -> Result<()> {
        check_name(Subject { operation: "rename", object: name }, name)?;
        self.change("rename", index, |link| link.append_extra_attribute(main_name(name)))
    }
}

/// Returns an alias without a final zero byte. An empty alias removes the link's alias.
fn alias(alias: &LinkName) -> LinkAttribute {
    LinkAttribute::Other(DefaultNla::new(IFLA_IFALIAS, alias.as_ref().to_vec()))
}

/// Returns a name with its final zero byte.
fn main_name(name: &LinkName) -> LinkAttribute {
    LinkAttribute::Other(DefaultNla::new(IFLA_IFNAME, [name.as_ref(), b"\0"].concat()))
}

/// Returns an alternative name with its final zero byte.
fn other_name(name: impl AsRef<[u8]>) -> DefaultNla {
    DefaultNla::new(IFLA_ALT_IFNAME, [name.as_ref(), b"\0"].concat())
}

/// `RTEXT_FILTER_SKIP_STATS`: the kernel need not collect statistics, which are not read here. A mask also makes the
/// kernel reserve room for the longest link in a dump. Without a mask the kernel ends the dump at a link that is too
/// long, without an error.
fn without_statistics() -> LinkAttribute {
    LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_as_the_kernel_does() {
        for name in ["lo", "eth0.100", "fifteen-letters", "käse", "a-b_c", "..."] {
            assert!(is_link_name(name), "{name}");
        }
        for name in ["", ".", "..", "a/b", "a:b", "a b", "a\t", "a\n", "a\u{b}", "a\0", "eth%d", "sixteen-letters-"] {
            assert!(!is_link_name(name), "{name}");
        }
    }
}
