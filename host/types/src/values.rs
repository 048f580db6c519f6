//! The plain values in operations and replies.

use crate::log::sparse;
use crate::{Dns, Handle, Mac};
use ipnet::IpNet;
use postern_cni::named;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// An 802.1Q VLAN identifier: 1 to 4094 for a port, and 0 to 4095 for a VLAN link.
pub type VlanId = u16;

/// The greatest length of a text that a plugin keeps (`notes`), in bytes.
pub const LONGEST_NOTE: usize = 4096;

sparse! {
    DhcpLease { addresses, routes, dns, mtu, server, seconds }
    LeaseRange { subnet, start, end, gateway }
    LinkSettings { mac, mtu, promisc, allmulti, tx_queue_length as "tx-queue-length" }
    PortSpec { hairpin, isolated, vlan, trunk, preserve_default_vlan }
    Route { dst, gateway, source, mtu, advmss, priority, table, scope }
    RouteSource { address, gateway }
    TapSettings { mtu, mac, owner, group, multi_queue, packet_information, vnet_header, selinux_context }
}

named! {
    name, parse:
    /// The packet filter that has the rules.
    pub enum Backend {
        /// nftables over netlink.
        Nftables = "nftables",
        /// The node's own iptables.
        Iptables = "iptables",
    }

    /// The packet filter that admits an attachment's addresses.
    pub enum FirewallBackend {
        /// The node's own iptables programs.
        Iptables = "iptables",
        /// firewalld, by the system's message bus.
        Firewalld = "firewalld",
    }

    /// The places from which traffic may reach a bridge, beside the node.
    pub enum IngressPolicy {
        /// Links of the same bridge. Other bridges with an ingress policy are blocked.
        SameBridge = "same-bridge",
        /// No other place.
        Isolated = "isolated",
    }

    /// The way of packets between an ipvlan link and its parent (`IFLA_IPVLAN_MODE`). All ipvlans of one parent have
    /// the same mode: a new mode also changes existing links.
    pub enum IpvlanMode {
        /// Packets pass as frames, with the parent's address.
        L2 = "l2",
        /// The parent routes the packets, past the packet filter of the parent's namespace.
        L3 = "l3",
        /// The parent routes the packets through the packet filter of its namespace, with connection tracking.
        L3s = "l3s",
    }

    /// The frames that pass between the macvlan links of one parent (`IFLA_MACVLAN_MODE`).
    pub enum MacvlanMode {
        /// Frames pass between all links of the parent.
        Bridge = "bridge",
        /// No frames pass.
        Private = "private",
        /// Frames pass through the switch that the parent is connected to.
        Vepa = "vepa",
        /// The parent has a single link, with the parent's frames and address.
        Passthru = "passthru",
    }
}

/// A link as the gate shows it: its handle, and its attributes from the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkInfo {
    /// The handle for later operations of this run.
    pub handle: Handle,
    /// The interface name in the link's own namespace.
    pub name: String,
    /// The link-layer address; `None` for a link without an address.
    pub mac: Option<Mac>,
    /// Maximum transmission unit in bytes.
    pub mtu: u32,
    /// The kernel's link kind (`IFLA_INFO_KIND`): `veth`, `bridge`, …; empty for physical links and `lo`.
    pub kind: String,
    /// True if `IFF_UP` is set.
    pub up: bool,
    /// True if the operational state is "up" (RFC 2863, `IFLA_OPERSTATE` 6).
    pub running: bool,
}

/// Both ends of a pair that belongs to this attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VethPair {
    /// The end in the container's namespace, named `CNI_IFNAME`.
    pub container: LinkInfo,
    /// The host end.
    pub host: LinkInfo,
    /// The name of the bridge that has the host end as a port, if any.
    pub bridge: Option<String>,
}

/// A bridge that policy grants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeInfo {
    /// The bridge itself.
    pub link: LinkInfo,
    /// True if `IFF_PROMISC` is set on the bridge.
    pub promisc: bool,
}

/// The settings of a bridge's port (`IFLA_BRPORT_*`, `bridge(8)`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct PortSpec {
    /// True if a frame may leave through the port where it entered.
    pub hairpin: bool,
    /// True if the port exchanges frames only with ports that are not isolated.
    pub isolated: bool,
    /// The access VLAN: PVID and untagged. `None` leaves the bridge's default, or VLAN 1 if only `trunk` is given.
    pub vlan: Option<VlanId>,
    /// The VLANs that are carried tagged.
    pub trunk: Vec<VlanId>,
    /// True to keep the VLANs that the port already has (normally 1).
    pub preserve_default_vlan: bool,
}

/// An address on a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Host address with prefix length.
    pub net: IpNet,
    /// `rt_scope_t` of `linux/rtnetlink.h`: 0 global, 253 link, 254 host.
    pub scope: u8,
    /// Duplicate address detection is still running (`IFA_F_TENTATIVE`).
    pub tentative: bool,
}

/// A route through a link of which the guest has a handle. The optional attributes are from the route object of CNI
/// 1.1.0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Route {
    /// The destination network; host bits are cut off.
    pub dst: IpNet,
    /// Next hop; `None` for a directly connected destination.
    pub gateway: Option<IpAddr>,
    /// Preferred source address (`RTA_PREFSRC`); must be the attachment's own.
    pub source: Option<IpAddr>,
    /// Path MTU in bytes (`RTAX_MTU`).
    pub mtu: Option<u32>,
    /// TCP maximum segment size in bytes (`RTAX_ADVMSS`).
    pub advmss: Option<u32>,
    /// Metric (`RTA_PRIORITY`); lower wins.
    pub priority: Option<u32>,
    /// Routing table (`RTA_TABLE`); `None` is the main table, 254.
    pub table: Option<u32>,
    /// `rt_scope_t`: 0 universe, 253 link, 254 host.
    pub scope: Option<u8>,
}

impl Route {
    /// True if `have` has this route's destination. If this route has a next hop or a metric, `have` must have the
    /// same value.
    pub fn is_met_by(&self, have: &Self) -> bool {
        have.dst == self.dst.trunc()
            && (self.gateway.is_none() || self.gateway == have.gateway)
            && (self.priority.is_none() || self.priority == have.priority)
    }
}

/// A route from the kernel that can be made again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRoute {
    /// The route, with its table.
    #[serde(flatten)]
    pub route: Route,
    /// The route's origin, `rtm_protocol`: 2 is the kernel, 3 a program.
    pub protocol: u8,
}

/// One of the attachment's own addresses, as the source of packets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RouteSource {
    /// The address.
    pub address: IpNet,
    /// The next hop for packets to other networks; `None` if the address sends no such packets.
    pub gateway: Option<IpAddr>,
}

/// Attributes of a link that a plugin changes or compares; `None` leaves an attribute unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LinkSettings {
    /// Link-layer address.
    pub mac: Option<Mac>,
    /// Maximum transmission unit in bytes.
    pub mtu: Option<u32>,
    /// `IFF_PROMISC`: the link takes frames for any address.
    pub promisc: Option<bool>,
    /// `IFF_ALLMULTI`: the link takes all multicast frames.
    pub allmulti: Option<bool>,
    /// `IFLA_TXQLEN`, in packets.
    pub tx_queue_length: Option<u32>,
}

impl LinkSettings {
    /// True if all attributes are `None`.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for LinkSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = |on: bool| if on { "on" } else { "off" };
        let parts = [
            self.mac.map(|mac| format!("address {mac}")),
            self.mtu.map(|mtu| format!("MTU {mtu}")),
            self.promisc.map(|on| format!("promiscuous mode {}", switch(on))),
            self.allmulti.map(|on| format!("all multicast frames {}", switch(on))),
            self.tx_queue_length.map(|length| format!("queue length {length}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "nothing" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

/// A per-link sysctl that a plugin may set on its own link, in the container's namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkSysctl {
    /// `net/ipv6/conf/<link>/accept_dad`: duplicate address detection.
    AcceptDad,
    /// `net/ipv6/conf/<link>/enhanced_dad` (RFC 7527).
    EnhancedDad,
    /// `net/ipv4/conf/<link>/arp_notify`: gratuitous ARP when the link comes up.
    ArpNotify,
    /// `net/ipv6/conf/<link>/ndisc_notify`: unsolicited neighbour advertisements when the link comes up.
    NdiscNotify,
    /// `net/ipv6/conf/<link>/keep_addr_on_down`.
    KeepAddrOnDown,
    /// `net/ipv6/conf/<link>/disable_ipv6`.
    DisableIpv6,
}

/// The attachment's own link, as a macvlan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacvlanInfo {
    /// The link.
    pub link: LinkInfo,
    /// The link's mode; `None` if the mode is unknown.
    pub mode: Option<MacvlanMode>,
}

/// The state of the container's `lo`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopbackState {
    /// True if `lo` is up.
    pub up: bool,
    /// The addresses of `lo`.
    pub addresses: Vec<Address>,
}

/// The attachment's own link, as an ipvlan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpvlanInfo {
    /// The link.
    pub link: LinkInfo,
    /// The link's mode; `None` if the mode is unknown.
    pub mode: Option<IpvlanMode>,
}

/// The attachment's own link, as a VLAN of another link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VlanInfo {
    /// The link.
    pub link: LinkInfo,
    /// The VLAN, 0 to 4095.
    pub id: VlanId,
}

/// The settings of a new tap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct TapSettings {
    /// The MTU in bytes; `None` is the kernel's default.
    pub mtu: Option<u32>,
    /// Link-layer address; for `None` the host chooses.
    pub mac: Option<Mac>,
    /// The user that may open the tap, by its ID in the host's user namespace.
    pub owner: Option<u32>,
    /// The group that may open the tap, by its ID in the host's user namespace.
    pub group: Option<u32>,
    /// `IFF_MULTI_QUEUE`: several descriptors at once.
    pub multi_queue: bool,
    /// True leaves out `IFF_NO_PI`: each frame begins with four more bytes.
    pub packet_information: bool,
    /// `IFF_VNET_HDR`: a header for offloads in front of each frame.
    pub vnet_header: bool,
    /// The SELinux context; `None` is the context of the host process.
    pub selinux_context: Option<String>,
}

/// The key by which a network's configuration names a device of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKey {
    /// Name of the device's link.
    Name,
    /// Link-layer address of the device's link.
    Address,
    /// The device's directory below `/sys/devices`.
    Path,
    /// The device's PCI address.
    Pci,
    /// The device's PCI address, or its name on the auxiliary bus.
    Id,
}

/// The variant of iptables: the place in the kernel where its rules are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IptablesVariant {
    /// Rules of nf_tables.
    Nft,
    /// The tables of legacy iptables.
    Legacy,
}

impl IptablesVariant {
    /// Returns the name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nft => "iptables (nf_tables)",
            Self::Legacy => "legacy iptables",
        }
    }
}

/// One range of addresses, as host-local's configuration gives it. The gate fills in the missing values.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LeaseRange {
    /// The subnet; host bits must be zero.
    pub subnet: IpNet,
    /// The first address to give out; default: the network's first address.
    pub start: Option<IpAddr>,
    /// The last address to give out; default: the network's last address.
    pub end: Option<IpAddr>,
    /// The gateway, never given out; default: the network's first address.
    pub gateway: Option<IpAddr>,
}

/// An address that was leased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseGrant {
    /// The address with the prefix length of its subnet.
    pub address: IpNet,
    /// The gateway of the address's range.
    pub gateway: Option<IpAddr>,
}

/// A lease that a DHCP server gave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct DhcpLease {
    /// The addresses, each with the router that the server names for it.
    pub addresses: Vec<LeaseGrant>,
    /// The routes that the server names.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Name resolution, if the network requests it.
    #[serde(default)]
    pub dns: Dns,
    /// The MTU in bytes, if the network requests it.
    pub mtu: Option<u32>,
    /// The server.
    pub server: Option<IpAddr>,
    /// The remaining time of the lease, in seconds; `None` for an endless lease.
    pub seconds: Option<u32>,
}
