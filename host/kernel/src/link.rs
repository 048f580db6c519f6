//! Links (`rtnetlink(7)`, `RTM_*LINK`; attributes of `linux/if_link.h`).

use crate::error::{Result, Subject};
use crate::netlink::Netlink;
use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL, Parseable};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoBridge, InfoData, InfoMacVlan, InfoVeth, LinkAttribute, LinkExtentMask, LinkMessage, LinkXdp, MacVlanMode, Prop,
};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use nix::errno::Errno;
use nix::libc;
use postern_netlink::Request;
use postern_netlink::{Attributes, u32_at};
use postern_types::MacvlanMode;
use rtnetlink::{LinkBridge, LinkMacVlan, LinkMessageBuilder, LinkUnspec, LinkVeth, LinkVrf};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Length of `struct ifinfomsg`.
const HEADER: usize = 16;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_TXQLEN: u16 = 13;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
/// The modes of XDP programs: in the network stack, in the driver, in the hardware (linux/if_link.h).
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const XDP_FLAGS_HW_MODE: u32 = 1 << 3;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
const IFLA_PERM_ADDRESS: u16 = 54;
const IFLA_PARENT_DEV_NAME: u16 = 56;
const IFLA_PARENT_DEV_BUS_NAME: u16 = 57;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_BRPORT_ISOLATED: u16 = 33;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_BR_VLAN_FILTERING: u16 = 7;
const IFLA_MACVLAN_MODE: u16 = 1;
const IFLA_VRF_TABLE: u16 = 1;
/// The room for an alternative name, in bytes, including the final zero byte.
const ALTIFNAMSIZ: usize = 128;

/// The kinds of links that are stacked on another link. Their `IFLA_LINK` is that other link.
const STACKED: [&str; 5] = ["macvlan", "macvtap", "ipvlan", "ipvtap", "vlan"];

/// The driver's device that a link belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `IFLA_PARENT_DEV_BUS_NAME`: `pci`, `virtio`, `auxiliary`, …
    pub bus: String,
    /// `IFLA_PARENT_DEV_NAME`, its name on that bus: `0000:3b:00.1`.
    pub name: String,
}

/// A link as the kernel showed it at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Interface index, unique in the namespace while the link exists.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// Link-layer address; `None` if it is not six bytes long.
    pub mac: Option<[u8; 6]>,
    /// Maximum transmission unit in bytes.
    pub mtu: u32,
    /// `IFLA_INFO_KIND`: `veth`, `bridge`, …; empty for physical links and `lo`.
    pub kind: String,
    /// `IFF_UP`.
    pub up: bool,
    /// `IFF_PROMISC`.
    pub promisc: bool,
    /// `IFF_ALLMULTI`.
    pub allmulti: bool,
    /// `IFLA_TXQLEN`, in packets.
    pub tx_queue_length: u32,
    /// True if the operational state is "up".
    pub running: bool,
    /// `IFLA_OPERSTATE` in the words of the native plugins' messages: `unknown`, `not-present`, `down`,
    /// `lower-layer-down`, `testing`, `dormant`, `up` (RFC 2863).
    pub operstate: &'static str,
    /// Index of the bridge (or bond, …) of which it is a port.
    pub master: Option<u32>,
    /// `IFLA_LINK`: for a veth the index of its other end, in that end's namespace.
    pub peer_index: Option<u32>,
    /// The namespace of the other end, as numbered in this namespace; `None` if it is this one.
    pub peer_netnsid: Option<i32>,
    /// `IFLA_BRPORT_ISOLATED`: true for a bridge port that can't reach other isolated ports.
    pub isolated: bool,
    /// `IFLA_BR_VLAN_FILTERING`: true if a bridge separates VLANs. False for every other link, and for a kernel that
    /// can't filter or doesn't report it.
    pub vlan_filtering: bool,
    /// `IFLA_MACVLAN_MODE`; `None` for every other link, and for an unknown mode.
    pub macvlan_mode: Option<MacvlanMode>,
    /// `IFLA_VRF_TABLE`: the routing table of a VRF; `None` for every other link.
    pub vrf_table: Option<u32>,
    /// `IFLA_IFALIAS`, free text.
    pub alias: Option<String>,
    /// `IFLA_PERM_ADDRESS`: the address that its driver gave it, independent of later settings. Virtual links have
    /// none.
    pub permanent: Option<[u8; 6]>,
    /// Its alternative names (`IFLA_ALT_IFNAME`).
    pub other_names: Vec<String>,
    /// True if an XDP program reads the received packets.
    pub has_xdp: bool,
    /// The driver's device that it belongs to. Virtual links have none, and no user can make one that has.
    pub device: Option<Device>,
}

impl Link {
    /// True if it is stacked on the link that [`Link::peer_index`] names.
    pub fn is_stacked(&self) -> bool {
        STACKED.contains(&self.kind.as_str())
    }

    /// Reads an `RTM_NEWLINK`; `None` if index or name are missing.
    fn decode(payload: &[u8]) -> Option<Self> {
        let index = u32_at(payload, 4)?;
        let flags = u32_at(payload, 8)?;
        let is_set = |flag: libc::c_int| flags & flag.cast_unsigned() != 0;
        let mut link = Self {
            index,
            name: String::new(),
            mac: None,
            mtu: 0,
            kind: String::new(),
            up: is_set(libc::IFF_UP),
            promisc: is_set(libc::IFF_PROMISC),
            allmulti: is_set(libc::IFF_ALLMULTI),
            tx_queue_length: 0,
            running: false,
            operstate: operstate(0),
            master: None,
            peer_index: None,
            peer_netnsid: None,
            isolated: false,
            vlan_filtering: false,
            macvlan_mode: None,
            vrf_table: None,
            alias: None,
            permanent: None,
            other_names: Vec::new(),
            has_xdp: false,
            device: None,
        };
        let (mut bus, mut device) = (None, None);
        for attribute in Attributes(payload.get(HEADER..)?) {
            match attribute.kind {
                IFLA_ADDRESS => link.mac = attribute.value.try_into().ok(),
                IFLA_IFNAME => attribute.text()?.clone_into(&mut link.name),
                IFLA_MTU => link.mtu = attribute.u32()?,
                IFLA_TXQLEN => link.tx_queue_length = attribute.u32()?,
                IFLA_LINK => link.peer_index = attribute.u32(),
                IFLA_MASTER => link.master = attribute.u32().filter(|index| *index != 0),
                IFLA_OPERSTATE => {
                    link.operstate = operstate(attribute.u8()?);
                    link.running = link.operstate == "up";
                }
                IFLA_LINKINFO => {
                    let kind = attribute.nested().first(IFLA_INFO_KIND);
                    kind.and_then(|info| info.text()).unwrap_or_default().clone_into(&mut link.kind);
                    let port = attribute.nested().first(IFLA_INFO_SLAVE_DATA);
                    let flag = port.and_then(|port| port.nested().first(IFLA_BRPORT_ISOLATED));
                    let of = attribute.nested().first(IFLA_INFO_SLAVE_KIND);
                    let is_port = of.and_then(|of| of.text()) == Some("bridge");
                    link.isolated = is_port && flag.and_then(|flag| flag.u8()) == Some(1);
                    if link.kind == "macvlan" {
                        let data = attribute.nested().first(IFLA_INFO_DATA);
                        let mode = data.and_then(|data| data.nested().first(IFLA_MACVLAN_MODE));
                        link.macvlan_mode = mode.and_then(|mode| mode.u32()).and_then(macvlan_mode);
                    }
                    if link.kind == "vrf" {
                        let data = attribute.nested().first(IFLA_INFO_DATA);
                        let table = data.and_then(|data| data.nested().first(IFLA_VRF_TABLE));
                        link.vrf_table = table.and_then(|table| table.u32());
                    }
                    // Each kind has its own attribute numbers.
                    if link.kind == "bridge" {
                        let mut data = attribute.nested().into_iter().filter(|info| info.kind == IFLA_INFO_DATA);
                        link.vlan_filtering = data.any(|data| {
                            let mut options = data.nested().into_iter();
                            options.any(|option| option.kind == IFLA_BR_VLAN_FILTERING && option.u8() == Some(1))
                        });
                    }
                }
                IFLA_IFALIAS => {
                    link.alias = Some(String::from_utf8_lossy(attribute.value).trim_end_matches('\0').into())
                }
                IFLA_LINK_NETNSID => link.peer_netnsid = attribute.u32().map(u32::cast_signed),
                IFLA_PERM_ADDRESS => link.permanent = attribute.value.try_into().ok(),
                IFLA_PROP_LIST => {
                    let names = attribute.nested().into_iter().filter(|name| name.kind == IFLA_ALT_IFNAME);
                    link.other_names = names.filter_map(|name| name.text().map(str::to_owned)).collect();
                }
                IFLA_XDP => {
                    let attached = attribute.nested().first(IFLA_XDP_ATTACHED).and_then(|attached| attached.u8());
                    link.has_xdp = attached.is_some_and(|how| how != 0);
                }
                IFLA_PARENT_DEV_NAME => device = attribute.text(),
                IFLA_PARENT_DEV_BUS_NAME => bus = attribute.text(),
                _ => {}
            }
        }
        if let Some(name) = device {
            link.device = Some(Device { bus: bus.unwrap_or_default().to_owned(), name: name.to_owned() });
        }
        (!link.name.is_empty()).then_some(link)
    }
}

/// `MACVLAN_MODE_*` of `linux/if_link.h`.
fn macvlan_mode(number: u32) -> Option<MacvlanMode> {
    match number {
        1 => Some(MacvlanMode::Private),
        2 => Some(MacvlanMode::Vepa),
        4 => Some(MacvlanMode::Bridge),
        8 => Some(MacvlanMode::Passthru),
        _ => None,
    }
}

/// `IF_OPER_*` of `linux/if.h`.
fn operstate(state: u8) -> &'static str {
    match state {
        1 => "not-present",
        2 => "down",
        3 => "lower-layer-down",
        4 => "testing",
        5 => "dormant",
        6 => "up",
        _ => "unknown",
    }
}

/// True if a link can have this name. The rules are those of the kernel's `dev_valid_name`, and no `%`, which the
/// kernel would replace with a number.
pub(crate) fn is_link_name(name: &str) -> bool {
    let length = name.len();
    (1..libc::IFNAMSIZ).contains(&length)
        && !matches!(name, "." | "..")
        && !name.bytes().any(|b| matches!(b, 0 | b'/' | b':' | b'%') || b.is_ascii_whitespace() || b == 0x0b)
}

/// A veth pair to be made: one end in the namespace of the sending socket, the other in another namespace.
#[derive(Clone, Copy, Debug)]
pub struct VethSpec<'a> {
    /// Name of this end.
    pub name: &'a str,
    /// MTU of both ends in bytes; `None` leaves the kernel's default, 1500.
    pub mtu: Option<u32>,
    /// Link-layer address of this end; `None` leaves it to the kernel, which picks a random one.
    pub mac: Option<[u8; 6]>,
    /// Name of the other end.
    pub peer_name: &'a str,
    /// Link-layer address of the other end.
    pub peer_mac: [u8; 6],
    /// Namespace of the other end.
    pub peer_ns: BorrowedFd<'a>,
}

/// A macvlan to be made on a link in the namespace of the sending socket.
#[derive(Clone, Copy, Debug)]
pub struct MacvlanSpec<'a> {
    /// Its name. The kernel also compares it with the links of the socket's own namespace.
    pub name: &'a str,
    /// Index of the link that it is stacked on.
    pub parent: u32,
    /// The mode: the traffic that passes between the parent's links.
    pub mode: MacvlanMode,
    /// MTU in bytes; `None` takes the parent's.
    pub mtu: Option<u32>,
    /// Link-layer address; `None` leaves it to the kernel.
    pub mac: Option<[u8; 6]>,
    /// The number of frames that may wait to be broadcast; `None` leaves the kernel's default.
    pub queue: Option<u32>,
    /// The namespace in which it is made; `None` is the socket's own.
    pub namespace: Option<BorrowedFd<'a>>,
}

impl Netlink {
    /// Returns the link of that name. The request has only the name, so the cost does not grow with the number of
    /// links. As everywhere in the kernel, an alternative name finds the link too (`ip link property`); [`Link::name`]
    /// is the main name.
    ///
    /// # Errors
    /// Those of the request; none is expected.
    pub fn link_by_name(&self, name: &str) -> Result<Option<Link>> {
        if !is_link_name(name) {
            return Ok(None);
        }
        let message = LinkUnspec::new_with_name(name);
        self.one_link(Subject { operation: "look up link", object: &name }, message)
    }

    /// Returns the same for names written by people: an alternative name may have up to 127 bytes.
    ///
    /// # Errors
    /// As [`Netlink::link_by_name`].
    pub fn link_by_any_name(&self, name: &str) -> Result<Option<Link>> {
        if name.len() < libc::IFNAMSIZ {
            return self.link_by_name(name);
        }
        if name.len() >= ALTIFNAMSIZ || name.contains('\0') {
            return Ok(None);
        }
        let other = DefaultNla::new(IFLA_ALT_IFNAME, [name.as_bytes(), b"\0"].concat());
        let message = LinkMessageBuilder::<LinkUnspec>::new().append_extra_attribute(LinkAttribute::Other(other));
        self.one_link(Subject { operation: "look up link", object: &name }, message)
    }

    /// Returns the link of that index.
    ///
    /// # Errors
    /// Those of the request; none is expected.
    pub fn link_by_index(&self, index: u32) -> Result<Option<Link>> {
        // The kernel can't answer a request with index 0 and no name.
        if index == 0 {
            return Ok(None);
        }
        self.one_link(Subject { operation: "look up link", object: &index }, LinkUnspec::new_with_index(index))
    }

    /// Returns the number of `namespace` in the links of this socket's namespace ([`Link::peer_netnsid`]). `None` if no
    /// link has needed such a number yet. `RTM_GETNSID` of rtnetlink(7).
    ///
    /// # Errors
    /// Those of the request; none is expected.
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
        match self.get(subject, &message, Link::decode) {
            Ok(link) => Ok(Some(link)),
            Err(error) if error.is(Errno::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns all links of the namespace.
    ///
    /// # Errors
    /// `EAGAIN` if they keep changing while they are listed.
    pub fn links(&self) -> Result<Vec<Link>> {
        let message = LinkMessageBuilder::<LinkUnspec>::new().append_extra_attribute(without_statistics()).build();
        let subject = Subject { operation: "list", object: &"links" };
        self.dump(subject, Request::new(&RouteNetlinkMessage::GetLink(message), 0), |payload, links| {
            links.push(Link::decode(payload)?);
            Some(())
        })
    }

    /// Sets the link up.
    ///
    /// # Errors
    /// `ENODEV` if there is none of that index; errors of its driver, such as `ENOTCONN` for a veth without a peer.
    pub fn set_up(&self, index: u32) -> Result<()> {
        self.change("set up", index, LinkMessageBuilder::up)
    }

    /// Sets the link down.
    ///
    /// # Errors
    /// `ENODEV` if there is none of that index.
    pub fn set_down(&self, index: u32) -> Result<()> {
        self.change("set down", index, LinkMessageBuilder::down)
    }

    /// Switches promiscuous mode (`IFF_PROMISC`).
    ///
    /// # Errors
    /// `ENODEV` if there is none of that index.
    pub fn set_promisc(&self, index: u32, on: bool) -> Result<()> {
        self.change("set promiscuous mode of", index, |link| link.promiscuous(on))
    }

    /// Switches the reception of all multicast frames (`IFF_ALLMULTI`).
    ///
    /// # Errors
    /// `ENODEV` if there is none of that index.
    pub fn set_allmulti(&self, index: u32, on: bool) -> Result<()> {
        self.change("set multicast mode of", index, |link| link.allmulticast(on))
    }

    /// Sets the length of the queue, in packets.
    ///
    /// # Errors
    /// `ENODEV` if there is none of that index, `ERANGE` for a length that the kernel can't keep.
    pub fn set_tx_queue_length(&self, index: u32, length: u32) -> Result<()> {
        self.change("set queue length of", index, |link| link.txqueuelen(length))
    }

    /// Sets the link-layer address. A bridge then keeps it, instead of taking the lowest address of its ports.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` for an address that is not unicast, `ENODEV` if there is no such link.
    pub fn set_mac(&self, index: u32, mac: [u8; 6]) -> Result<()> {
        self.change("set address of", index, |link| link.address(mac.to_vec()))
    }

    /// Makes the link a port of another, or of none.
    ///
    /// # Errors
    /// `ENODEV` if there is no such link, `EINVAL` if the master takes no ports.
    pub fn set_master(&self, index: u32, master: Option<u32>) -> Result<()> {
        self.change("set master of", index, |link| link.controller(master.unwrap_or(0)))
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

    /// Deletes the link, and for a veth also its other end; false if it was gone already.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a link that can't be deleted (`lo`, physical ones).
    pub fn delete_link(&self, index: u32) -> Result<bool> {
        // With index 0 the kernel would select by other attributes, and there are none.
        if index == 0 {
            return Ok(false);
        }
        let message = RouteNetlinkMessage::DelLink(LinkUnspec::new_with_index(index).build());
        match self.acknowledged(Subject { operation: "delete", object: &format_args!("link {index}") }, &message, 0) {
            Ok(()) => Ok(true),
            Err(error) if error.is(Errno::ENODEV) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates a bridge, which stays down; false if a link of any kind has that name already.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the kernel knows no bridges or no VLAN filtering, `EINVAL` for a bad name or MTU.
    pub fn create_bridge(&self, name: &str, mtu: Option<u32>, vlan_filtering: bool) -> Result<bool> {
        let subject = Subject { operation: "create bridge", object: &name };
        if !is_link_name(name) {
            return Err(subject.invalid("no link can have this name"));
        }
        let mut bridge = LinkMessageBuilder::<LinkBridge>::new(name);
        if let Some(mtu) = mtu {
            bridge = bridge.mtu(mtu);
        }
        if vlan_filtering {
            bridge = bridge.append_info_data(InfoBridge::VlanFiltering(true));
        }
        match self.acknowledged(subject, &RouteNetlinkMessage::NewLink(bridge.build()), NLM_F_CREATE | NLM_F_EXCL) {
            Ok(()) => Ok(true),
            Err(error) if error.is(Errno::EEXIST) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates a veth pair with one message, each end in its final namespace and both down. It must be sent on the
    /// container's socket. Then no temporary link appears in the host's namespace.
    ///
    /// Both ends get one queue for each direction. By default the kernel makes one per processor. That is a third of
    /// the whole creation time, and useless behind a bridge or a route.
    ///
    /// # Errors
    /// `EEXIST` if either name is taken in its namespace, `EINVAL` for a bad name or MTU, `EADDRNOTAVAIL` for an
    /// address that is not unicast.
    pub fn create_veth(&self, spec: &VethSpec<'_>) -> Result<()> {
        let subject =
            Subject { operation: "create veth", object: &format_args!("{} and {}", spec.name, spec.peer_name) };
        if !is_link_name(spec.name) || !is_link_name(spec.peer_name) {
            return Err(subject.invalid("no link can have this name"));
        }
        let message = RouteNetlinkMessage::NewLink(veth_message(spec));
        self.acknowledged(subject, &message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Creates a macvlan link, which stays down.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken in either namespace. `EBUSY` if the parent is a port of another link. `EINVAL` for
    /// a bad name, MTU or parent, and for a second link of a parent that has one in mode "passthru".
    pub fn create_macvlan(&self, spec: &MacvlanSpec<'_>) -> Result<()> {
        let subject = Subject { operation: "create macvlan", object: &spec.name };
        if !is_link_name(spec.name) {
            return Err(subject.invalid("no link can have this name"));
        }
        let mode = match spec.mode {
            MacvlanMode::Bridge => MacVlanMode::Bridge,
            MacvlanMode::Private => MacVlanMode::Private,
            MacvlanMode::Vepa => MacVlanMode::Vepa,
            MacvlanMode::Passthru => MacVlanMode::Passthrough,
        };
        let mut link = LinkMacVlan::new(spec.name, spec.parent, mode);
        if let Some(mtu) = spec.mtu {
            link = link.mtu(mtu);
        }
        if let Some(mac) = spec.mac {
            link = link.address(mac.to_vec());
        }
        if let Some(queue) = spec.queue {
            link = link.append_info_data(InfoMacVlan::BcQueueLen(queue));
        }
        if let Some(namespace) = spec.namespace {
            link = link.setns_by_fd(namespace.as_raw_fd());
        }
        self.acknowledged(subject, &RouteNetlinkMessage::NewLink(link.build()), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Creates a VRF with this routing table, which stays down.
    ///
    /// # Errors
    /// `EEXIST` if a link has that name, `EOPNOTSUPP` for a kernel without VRFs.
    pub fn create_vrf(&self, name: &str, table: u32) -> Result<()> {
        let subject = Subject { operation: "create VRF", object: &name };
        if !is_link_name(name) {
            return Err(subject.invalid("no link can have this name"));
        }
        let message = RouteNetlinkMessage::NewLink(LinkVrf::new(name, table).build());
        self.acknowledged(subject, &message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Moves the link into another namespace, with this name and this alias (`""` is none). It is down there, without
    /// addresses and routes. One message does all of it, so no process sees the link half moved.
    ///
    /// # Errors
    /// `EEXIST` if one of the link's names is taken there. `EINVAL` for a link that cannot be moved (`lo`, a bridge) and
    /// for a name that no link can have. `ENODEV` if there is no such link.
    pub fn hand_over(&self, index: u32, namespace: BorrowedFd<'_>, name: &str, alias: &str) -> Result<()> {
        if !is_link_name(name) {
            let subject = Subject { operation: "move", object: &name };
            return Err(subject.invalid("no link can have this name"));
        }
        self.change("move", index, |link| {
            let link = link.setns_by_fd(namespace.as_raw_fd()).name(name).down();
            link.append_extra_attribute(self::alias(alias))
        })
    }

    /// Sets the alias; `""` is none.
    ///
    /// # Errors
    /// `ENODEV` if there is no such link.
    pub fn set_alias(&self, index: u32, alias: &str) -> Result<()> {
        self.change("set alias of", index, |link| link.append_extra_attribute(self::alias(alias)))
    }

    /// Sets the MTU, in bytes.
    ///
    /// # Errors
    /// `EINVAL` for one that the driver refuses, `ENODEV` if there is no such link.
    pub fn set_mtu(&self, index: u32, mtu: u32) -> Result<()> {
        self.change("set MTU of", index, |link| link.mtu(mtu))
    }

    /// Removes the XDP programs from the link. It can have one in each mode, and one message removes that of one mode.
    ///
    /// # Errors
    /// `ENODEV` if there is no such link, `EBUSY` if a process holds a program there by a descriptor.
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
    /// `EEXIST` if one is taken, `ENOENT` if the link has none of that name, `ENODEV` if there is no such link.
    pub fn change_other_names(&self, index: u32, names: &[String], add: bool) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let names = names.iter().cloned().map(Prop::AltIfName).collect();
        let link = LinkUnspec::new_with_index(index).append_extra_attribute(LinkAttribute::PropList(names)).build();
        let subject = Subject { operation: "change alternative names of", object: &format_args!("link {index}") };
        match add {
            true => self.acknowledged(subject, &RouteNetlinkMessage::NewLinkProp(link), NLM_F_CREATE | NLM_F_EXCL),
            false => self.acknowledged(subject, &RouteNetlinkMessage::DelLinkProp(link), 0),
        }
    }

    /// Gives the link another name; it must be down.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken, `EINVAL` if no link can have it, `ENODEV` if there is no such link.
    pub fn rename(&self, index: u32, name: &str) -> Result<()> {
        if !is_link_name(name) {
            let subject = Subject { operation: "rename", object: &name };
            return Err(subject.invalid("no link can have this name"));
        }
        self.change("rename", index, |link| link.name(name))
    }
}

fn veth_message(spec: &VethSpec<'_>) -> LinkMessage {
    let peer =
        LinkUnspec::new_with_name(spec.peer_name).address(spec.peer_mac.to_vec()).setns_by_fd(spec.peer_ns.as_raw_fd());
    let peer = end(peer, spec.mtu).build();
    let mut own = end(LinkVeth::new(spec.name, spec.peer_name), spec.mtu);
    if let Some(mac) = spec.mac {
        own = own.address(mac.to_vec());
    }
    own.set_info_data(InfoData::Veth(InfoVeth::Peer(peer))).build()
}

/// Returns an alias without a final zero byte. An empty alias removes it.
fn alias(alias: &str) -> LinkAttribute {
    LinkAttribute::Other(DefaultNla::new(IFLA_IFALIAS, alias.as_bytes().to_vec()))
}

/// Sets the attributes that both ends of a veth pair have in common.
fn end<T>(link: LinkMessageBuilder<T>, mtu: Option<u32>) -> LinkMessageBuilder<T> {
    let link = link
        .append_extra_attribute(LinkAttribute::NumTxQueues(1))
        .append_extra_attribute(LinkAttribute::NumRxQueues(1));
    match mtu {
        Some(mtu) => link.mtu(mtu),
        None => link,
    }
}

/// `RTEXT_FILTER_SKIP_STATS`: the kernel need not collect statistics, which are not read here.
fn without_statistics() -> LinkAttribute {
    LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::attribute;

    #[test]
    fn names_are_judged_as_the_kernel_does() {
        for name in ["lo", "eth0.100", "fifteen-letters", "käse", "a-b_c", "..."] {
            assert!(is_link_name(name), "{name}");
        }
        for name in ["", ".", "..", "a/b", "a:b", "a b", "a\t", "a\n", "a\u{b}", "a\0", "eth%d", "sixteen-letters-"] {
            assert!(!is_link_name(name), "{name}");
        }
    }

    #[test]
    fn decoding_survives_cut_and_nameless_messages() {
        let mut message = vec![0; HEADER];
        message[4] = 5;
        assert_eq!(Link::decode(&message), None, "no name");
        message.extend(attribute(IFLA_IFNAME, b"eth0\0"));
        message.extend(attribute(IFLA_LINKINFO, &attribute(IFLA_INFO_KIND, b"veth\0")));
        message.extend(attribute(IFLA_ADDRESS, &[0; 20]));
        message.extend(attribute(IFLA_OPERSTATE, &[9]));
        message.extend(attribute(IFLA_PARENT_DEV_NAME, b"0000:3b:00.1\0"));
        message.extend(attribute(IFLA_PARENT_DEV_BUS_NAME, b"pci\0"));
        message.extend(attribute(IFLA_PERM_ADDRESS, &[2, 0, 0, 0, 0, 9]));
        let link = Link::decode(&message).unwrap();
        assert_eq!(link.device, Some(Device { bus: "pci".to_owned(), name: "0000:3b:00.1".to_owned() }));
        assert_eq!(link.permanent, Some([2, 0, 0, 0, 0, 9]));
        assert_eq!((link.index, link.name.as_str(), link.kind.as_str()), (5, "eth0", "veth"));
        assert_eq!((link.mac, link.operstate), (None, "unknown"));
        for end in 0..message.len() {
            let _ = Link::decode(&message[..end]);
        }
        message.extend(attribute(IFLA_MTU, &[1]));
        assert_eq!(Link::decode(&message), None, "an MTU of one byte");
    }

    #[test]
    fn a_bridge_tells_whether_it_filters_vlans() {
        let link = |kind: &[u8], data: &[u8]| {
            let mut message = vec![0; HEADER];
            message[4] = 5;
            message.extend(attribute(IFLA_IFNAME, b"br0\0"));
            let info = [attribute(IFLA_INFO_KIND, kind), attribute(IFLA_INFO_DATA, data)].concat();
            message.extend(attribute(IFLA_LINKINFO, &info));
            Link::decode(&message).unwrap().vlan_filtering
        };
        let option = |value: &[u8]| attribute(IFLA_BR_VLAN_FILTERING, value);
        assert!(link(b"bridge\0", &option(&[1])));
        assert!(link(b"bridge\0", &[attribute(5, &[1; 4]), option(&[1]), attribute(8, &[0; 2])].concat()));
        assert!(!link(b"bridge\0", &option(&[0])));
        // A kernel that reports nothing or another value, and a link of another kind that uses the same number.
        assert!(!link(b"bridge\0", &[]));
        assert!(!link(b"bridge\0", &option(&[])));
        assert!(!link(b"vxlan\0", &option(&[1])));
    }
}
