//! A link as the kernel reports it (`RTM_NEWLINK`).

use super::{AF_INET6, HEADER};
use nix::libc::{
    self, IFLA_ADDRESS, IFLA_AF_SPEC, IFLA_ALT_IFNAME, IFLA_IFALIAS, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND,
    IFLA_INFO_SLAVE_DATA, IFLA_INFO_SLAVE_KIND, IFLA_LINK, IFLA_LINK_NETNSID, IFLA_LINKINFO, IFLA_MASTER, IFLA_MTU,
    IFLA_OPERSTATE, IFLA_PARENT_DEV_BUS_NAME, IFLA_PARENT_DEV_NAME, IFLA_PERM_ADDRESS, IFLA_PROP_LIST, IFLA_TXQLEN,
    IFLA_XDP,
};
use postern_netlink::{Attributes, u16_at, u32_at};
use postern_types::{IpvlanMode, LinkName, MacvlanMode};

const IFLA_INET6_CONF: u16 = 2;
/// Places in the list of a link's IPv6 settings, `DEVCONF_*` of linux/ipv6.h.
const DEVCONF_DISABLE_IPV6: usize = 26;
const DEVCONF_ACCEPT_DAD: usize = 27;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_BRPORT_ISOLATED: u16 = 33;
const IFLA_BR_VLAN_FILTERING: u16 = 7;
const IFLA_MACVLAN_MODE: u16 = 1;
const IFLA_IPVLAN_MODE: u16 = 1;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_PROTOCOL: u16 = 5;
/// The protocol of 802.1ad, in the byte order of the wire (linux/if_ether.h).
const ETH_P_8021AD: [u8; 2] = [0x88, 0xa8];
const IFLA_VRF_TABLE: u16 = 1;
const IFLA_TUN_NUM_DISABLED_QUEUES: u16 = 9;

/// The kinds of links that are stacked on another link. Their `IFLA_LINK` is the link below.
const STACKED: [&str; 5] = ["macvlan", "macvtap", "ipvlan", "ipvtap", "vlan"];

/// The driver's device that a link belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusDevice {
    /// `IFLA_PARENT_DEV_BUS_NAME`: `pci`, `virtio`, `auxiliary`, …
    pub bus: String,
    /// `IFLA_PARENT_DEV_NAME`, the device's name on the bus: `0000:3b:00.1`.
    pub name: String,
}

/// A link as the kernel showed it at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Interface index, unique in the namespace while the link exists.
    pub index: u32,
    /// Interface name.
    pub name: LinkName,
    /// Link-layer address; `None` if it is not six bytes long.
    pub mac: Option<[u8; 6]>,
    /// Maximum transmission unit in bytes.
    pub mtu: u32,
    /// The link-layer type, an `ARPHRD_*` of linux/if_arp.h.
    pub hardware: u16,
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
    /// Index of the bridge (or bond, …) of which the link is a port.
    pub master: Option<u32>,
    /// `IFLA_LINK`: for a veth the index of its other end, in that end's namespace.
    pub peer_index: Option<u32>,
    /// This namespace's number for the namespace of the other end; `None` if both ends are in this namespace.
    pub peer_netnsid: Option<i32>,
    /// `IFLA_BRPORT_ISOLATED`: true for a bridge port that can't reach other isolated ports.
    pub isolated: bool,
    /// `IFLA_BR_VLAN_FILTERING`: true if a bridge separates VLANs. False for every other link, and if the kernel can't
    /// separate VLANs or doesn't report this.
    pub vlan_filtering: bool,
    /// `IFLA_MACVLAN_MODE`; `None` for every other link, and for an unknown mode.
    pub macvlan_mode: Option<MacvlanMode>,
    /// `IFLA_IPVLAN_MODE`; `None` for every other link, and for an unknown mode. All ipvlans of one parent have the
    /// same mode.
    pub ipvlan_mode: Option<IpvlanMode>,
    /// `IFLA_VLAN_ID`, 0 to 4095; `None` for every other link.
    pub vlan_id: Option<u16>,
    /// `IFLA_VLAN_PROTOCOL`: true for a VLAN of the provider (802.1ad). A link can have VLANs of both protocols with
    /// one ID.
    pub is_provider_vlan: bool,
    /// `IFLA_TUN_NUM_DISABLED_QUEUES`: the queues of a tap that programs have open and have switched off. `None` for
    /// every other link, and for a tap with one queue.
    pub disabled_queues: Option<u32>,
    /// `IFLA_VRF_TABLE`: the routing table of a VRF; `None` for every other link.
    pub vrf_table: Option<u32>,
    /// `IFLA_IFALIAS`, free text.
    pub alias: Option<LinkName>,
    /// `IFLA_PERM_ADDRESS`: the link-layer address from the driver, which later settings do not change. Virtual links
    /// have none.
    pub permanent: Option<[u8; 6]>,
    /// The alternative names (`IFLA_ALT_IFNAME`).
    pub other_names: Vec<LinkName>,
    /// The link's `accept_dad` (`net/ipv6/conf`): not 0 if the kernel makes duplicate address detection for the link's
    /// IPv6 addresses. `None` without IPv6.
    pub accept_dad: Option<u32>,
    /// The link's `disable_ipv6`.
    pub disable_ipv6: bool,
    /// True if an XDP program reads the received packets.
    pub has_xdp: bool,
    /// The driver's device that the link belongs to. Virtual links have no device, and no user can make a link that has
    /// a device.
    pub device: Option<BusDevice>,
}

impl Link {
    /// True if the link is stacked on the link of index [`Link::peer_index`].
    pub fn is_stacked(&self) -> bool {
        STACKED.contains(&self.kind.as_str())
    }

    /// Reads an `RTM_NEWLINK`; `None` if the message is cut. An invalid attribute is ignored: root in a container can
    /// choose many attributes.
    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let index = u32_at(payload, 4)?;
        let flags = u32_at(payload, 8)?;
        let is_set = |flag: libc::c_int| flags & flag.cast_unsigned() != 0;
        let mut link = Self {
            index,
            hardware: u16_at(payload, 2)?,
            up: is_set(libc::IFF_UP),
            promisc: is_set(libc::IFF_PROMISC),
            allmulti: is_set(libc::IFF_ALLMULTI),
            operstate: operstate(0),
            ..Self::default()
        };
        let (mut bus, mut device) = (None, None);
        for attribute in Attributes(payload.get(HEADER..)?).iter() {
            match attribute.kind {
                IFLA_ADDRESS => link.mac = attribute.value.try_into().ok(),
                IFLA_IFNAME => link.name = LinkName::new(attribute.string()),
                IFLA_MTU => link.mtu = attribute.u32().unwrap_or_default(),
                IFLA_TXQLEN => link.tx_queue_length = attribute.u32().unwrap_or_default(),
                IFLA_LINK => link.peer_index = attribute.u32(),
                IFLA_MASTER => link.master = attribute.u32().filter(|index| *index != 0),
                IFLA_OPERSTATE => {
                    link.operstate = operstate(attribute.u8().unwrap_or_default());
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
                    // Each kind has its own attribute numbers.
                    let own = |number: u16| {
                        let data = attribute.nested().first(IFLA_INFO_DATA);
                        data.and_then(|data| data.nested().first(number))
                    };
                    match link.kind.as_str() {
                        "macvlan" => {
                            let mode = own(IFLA_MACVLAN_MODE).and_then(|mode| mode.u32());
                            link.macvlan_mode = mode.and_then(macvlan_mode);
                        }
                        "ipvlan" | "ipvtap" => {
                            let mode = own(IFLA_IPVLAN_MODE).and_then(|mode| mode.u16());
                            link.ipvlan_mode = mode.and_then(ipvlan_mode);
                        }
                        "vlan" => {
                            link.vlan_id = own(IFLA_VLAN_ID).and_then(|id| id.u16());
                            link.is_provider_vlan = own(IFLA_VLAN_PROTOCOL).is_some_and(|is| is.value == ETH_P_8021AD);
                        }
                        "tun" => {
                            link.disabled_queues = own(IFLA_TUN_NUM_DISABLED_QUEUES).and_then(|queues| queues.u32())
                        }
                        "bridge" => link.vlan_filtering = own(IFLA_BR_VLAN_FILTERING).and_then(|on| on.u8()) == Some(1),
                        "vrf" => link.vrf_table = own(IFLA_VRF_TABLE).and_then(|table| table.u32()),
                        _ => {}
                    }
                }
                IFLA_IFALIAS => link.alias = Some(LinkName::new(attribute.string())),
                IFLA_LINK_NETNSID => link.peer_netnsid = attribute.u32().map(u32::cast_signed),
                IFLA_PERM_ADDRESS => link.permanent = attribute.value.try_into().ok(),
                IFLA_PROP_LIST => {
                    let names = attribute.nested().iter().filter(|name| name.kind == IFLA_ALT_IFNAME);
                    link.other_names = names.map(|name| LinkName::new(name.string())).collect();
                }
                IFLA_AF_SPEC => {
                    let of_v6 = attribute.nested().first(AF_INET6);
                    let settings = of_v6.and_then(|of_v6| of_v6.nested().first(IFLA_INET6_CONF));
                    // Each setting is a number of 32 bits, at its place.
                    let setting = |place: usize| settings.as_ref().and_then(|all| u32_at(all.value, place * 4));
                    link.accept_dad = setting(DEVCONF_ACCEPT_DAD);
                    link.disable_ipv6 = setting(DEVCONF_DISABLE_IPV6).is_some_and(|value| value != 0);
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
            link.device = Some(BusDevice { bus: bus.unwrap_or_default().to_owned(), name: name.to_owned() });
        }
        Some(link)
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

/// `IPVLAN_MODE_*` of `linux/if_link.h`.
fn ipvlan_mode(number: u16) -> Option<IpvlanMode> {
    match number {
        0 => Some(IpvlanMode::L2),
        1 => Some(IpvlanMode::L3),
        2 => Some(IpvlanMode::L3s),
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

#[cfg(test)]
mod tests {
    use super::*;
    use postern_netlink::attribute;

    #[test]
    fn decoding_survives_cut_and_senseless_messages() {
        let mut message = vec![0; HEADER];
        message[4] = 5;
        message.extend(attribute(IFLA_IFNAME, b"eth0\0"));
        message.extend(attribute(IFLA_LINKINFO, &attribute(IFLA_INFO_KIND, b"veth\0")));
        message.extend(attribute(IFLA_ADDRESS, &[0; 20]));
        message.extend(attribute(IFLA_OPERSTATE, &[9]));
        message.extend(attribute(IFLA_PARENT_DEV_NAME, b"0000:3b:00.1\0"));
        message.extend(attribute(IFLA_PARENT_DEV_BUS_NAME, b"pci\0"));
        message.extend(attribute(IFLA_PERM_ADDRESS, &[2, 0, 0, 0, 0, 9]));
        let link = Link::decode(&message).unwrap();
        assert_eq!(link.device, Some(BusDevice { bus: "pci".to_owned(), name: "0000:3b:00.1".to_owned() }));
        assert_eq!(link.permanent, Some([2, 0, 0, 0, 0, 9]));
        assert_eq!((link.index, link.name.text(), link.kind.as_str()), (5, Some("eth0"), "veth"));
        assert_eq!((link.mac, link.operstate), (None, "unknown"));
        for end in 0..message.len() {
            let _ = Link::decode(&message[..end]);
        }
        assert_eq!(Link::decode(&message[..HEADER - 1]), None);
        for (kind, value) in [(IFLA_MTU, &[1][..]), (IFLA_TXQLEN, &[]), (IFLA_OPERSTATE, &[]), (IFLA_LINKINFO, &[7])] {
            message.extend(attribute(kind, value));
        }
        let link = Link::decode(&message).unwrap();
        assert_eq!((link.index, link.name.text(), link.mtu), (5, Some("eth0"), 0));
    }

    #[test]
    fn a_vlan_tells_its_protocol() {
        let link = |data: &[u8]| {
            let mut message = vec![0; HEADER];
            let info = [attribute(IFLA_INFO_KIND, b"vlan\0"), attribute(IFLA_INFO_DATA, data)].concat();
            message.extend(attribute(IFLA_LINKINFO, &info));
            let link = Link::decode(&message).unwrap();
            (link.vlan_id, link.is_provider_vlan)
        };
        let id = attribute(IFLA_VLAN_ID, &7_u16.to_ne_bytes());
        assert_eq!(link(&id), (Some(7), false));
        assert_eq!(link(&[id.clone(), attribute(IFLA_VLAN_PROTOCOL, &[0x81, 0x00])].concat()), (Some(7), false));
        assert_eq!(link(&[id, attribute(IFLA_VLAN_PROTOCOL, &ETH_P_8021AD)].concat()), (Some(7), true));
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
