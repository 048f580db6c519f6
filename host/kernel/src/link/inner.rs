//! Links that are no pair: macvlan, VLAN, ipvlan and dummy.

use crate::error::{Result, Subject};
use crate::netlink::Netlink;
use netlink_packet_route::link::{InfoMacVlan, IpVlanMode, LinkMessage, MacVlanMode};
use postern_types::{IpvlanMode, MacvlanMode};
use rtnetlink::{LinkDummy, LinkIpVlan, LinkMacVlan, LinkMessageBuilder, LinkVlan};
use std::os::fd::{AsRawFd, BorrowedFd};

/// A link to be made that is no pair. The parent, if any, is in the namespace of the sending socket.
#[derive(Clone, Copy, Debug)]
pub struct InnerSpec<'a> {
    /// The link's name. The kernel also compares it with the links' names in the socket's own namespace.
    pub name: &'a str,
    /// The kind of the link, with the settings of that kind.
    pub kind: InnerLinkKind,
    /// MTU in bytes; `None` takes the parent's, or the kernel's default.
    pub mtu: Option<u32>,
    /// Link-layer address; with `None` the kernel chooses. A VLAN and an ipvlan then have their parent's address.
    pub mac: Option<[u8; 6]>,
    /// The namespace in which the link is made; `None` is the socket's own.
    pub namespace: Option<BorrowedFd<'a>>,
}

/// The kind of an [`InnerSpec`]. A parent is an interface index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InnerLinkKind {
    /// A dummy link accepts every frame, and sends none.
    Dummy,
    /// A macvlan has its own link-layer address on its parent's network.
    Macvlan {
        /// The link below.
        parent: u32,
        /// The traffic that passes between the parent's links.
        mode: MacvlanMode,
        /// The number of frames that may wait to be broadcast; `None` leaves the kernel's default.
        queue: Option<u32>,
    },
    /// A VLAN of its parent (IEEE 802.1Q), 0 to 4094.
    Vlan {
        /// The link below.
        parent: u32,
        /// The VLAN.
        id: u16,
    },
    /// An ipvlan has its parent's link-layer address. IP addresses distinguish the ipvlans of one parent.
    Ipvlan {
        /// The link below.
        parent: u32,
        /// The mode of all ipvlans of the parent.
        mode: IpvlanMode,
    },
}

impl Netlink {
    /// Creates a link that is no pair. The link stays down.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken in either namespace, or if the parent has this VLAN in any namespace. `EBUSY` if
    /// the parent is a port of another link. `EINVAL` for a bad name, MTU or parent, and for a second macvlan of a
    /// parent with a macvlan in mode "passthru". `EOPNOTSUPP` if the kernel has no links of this kind.
    pub fn create_inner(&self, spec: &InnerSpec<'_>) -> Result<()> {
        let link = match spec.kind {
            InnerLinkKind::Dummy => inner(LinkDummy::new(spec.name), spec),
            InnerLinkKind::Macvlan { parent, mode, queue } => inner(macvlan(spec.name, parent, mode, queue), spec),
            InnerLinkKind::Vlan { parent, id } => inner(LinkVlan::new(spec.name, parent, id), spec),
            InnerLinkKind::Ipvlan { parent, mode } => inner(ipvlan(spec.name, parent, mode), spec),
        };
        self.create(Subject { operation: "create link", object: &spec.name }, spec.name, link)
    }
}

fn macvlan(name: &str, parent: u32, mode: MacvlanMode, queue: Option<u32>) -> LinkMessageBuilder<LinkMacVlan> {
    let mode = match mode {
        MacvlanMode::Bridge => MacVlanMode::Bridge,
        MacvlanMode::Private => MacVlanMode::Private,
        MacvlanMode::Vepa => MacVlanMode::Vepa,
        MacvlanMode::Passthru => MacVlanMode::Passthrough,
    };
    let link = LinkMacVlan::new(name, parent, mode);
    match queue {
        Some(queue) => link.append_info_data(InfoMacVlan::BcQueueLen(queue)),
        None => link,
    }
}

fn ipvlan(name: &str, parent: u32, mode: IpvlanMode) -> LinkMessageBuilder<LinkIpVlan> {
    let mode = match mode {
        IpvlanMode::L2 => IpVlanMode::L2,
        IpvlanMode::L3 => IpVlanMode::L3,
        IpvlanMode::L3s => IpVlanMode::L3S,
    };
    LinkIpVlan::new(name, parent, mode)
}

/// Sets the attributes that all kinds of inner links have in common.
fn inner<T>(mut link: LinkMessageBuilder<T>, spec: &InnerSpec<'_>) -> LinkMessage {
    if let Some(mtu) = spec.mtu {
        link = link.mtu(mtu);
    }
    if let Some(mac) = spec.mac {
        link = link.address(mac.to_vec());
    }
    if let Some(namespace) = spec.namespace {
        link = link.setns_by_fd(namespace.as_raw_fd());
    }
    link.build()
}
