//! The whole of what a guest can ask for.

use crate::{Backend, LeaseRange, LinkSysctl, Mac, PortSpec, Route};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Stands for an object that the gate has given to the guest of one run. The number means nothing by itself: the gate
/// keeps namespace, index, name and permitted verbs behind it and looks at them again at every use.
pub type Handle = u32;

/// One privileged request. The variants are grouped by the WIT interface that they come from, `container` or `host`
/// saying in which network namespace they act. Names, paths and keys that are absent here are chosen by the gate, from
/// the operator's configuration, the environment of the run or its own record.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Operation {
    /// `link.own`, container: look up the attachment's own link.
    LinkOwn,
    /// `link.attributes`, either: read a held link again.
    LinkAttributes { link: Handle },
    /// `link.up`, container: set the held link up.
    LinkUp { link: Handle },
    /// `link.delete`, container: delete the held link, and with it the other end of a veth.
    LinkDelete { link: Handle },

    /// `veth.create`, both: one message makes both ends, each in its final namespace; the host's end is up.
    VethCreate { mtu: Option<u32>, mac: Option<Mac> },
    /// `veth.find`, both: the attachment's existing pair.
    VethFind,
    /// `veth.wait-running`, host: wait until the host's end is operational.
    VethWaitRunning { host: Handle },

    /// `addresses.add`, container: put addresses, which must be the attachment's own, on the held link.
    AddressesAdd { link: Handle, addresses: Vec<IpNet> },
    /// `addresses.list`, container.
    AddressesList { link: Handle },
    /// `addresses.settle`, container: wait for duplicate address detection.
    AddressesSettle { link: Handle },

    /// `routes.add`, container: every route leaves through the held link.
    RoutesAdd { link: Handle, routes: Vec<Route> },
    /// `routes.remove-connected`, container: drop the kernel's own prefix routes of these networks.
    RoutesRemoveConnected { link: Handle, networks: Vec<IpNet> },
    /// `routes.list`, container: main-table routes through the held link.
    RoutesList { link: Handle },

    /// `link-sysctl.*`, container: one known key of the held link.
    SysctlSet { link: Handle, key: LinkSysctl, value: bool },

    /// `bridge.ensure`, host: create or find the granted bridge, up. A node object.
    BridgeEnsure { name: String, mtu: Option<u32>, vlan_filtering: bool, promisc: bool },
    /// `bridge.find`, host: look at the granted bridge.
    BridgeFind { name: String },
    /// `bridge.attach`, host: make the attachment's own host end a port.
    BridgeAttach { bridge: Handle, host: Handle, port: PortSpec },
    /// `bridge.ensure-gateways`, host: put the gateways of the attachment's addresses on the bridge, or on its VLAN
    /// gateway `<bridge>.<vlan>` if the port has an access VLAN. Node objects.
    BridgeEnsureGateways { bridge: Handle, port: PortSpec, force: bool },

    /// `point-to-point.ensure`, host: gateway address and route to each of the attachment's addresses on its host end.
    PointToPointEnsure { host: Handle },
    /// `forwarding.enable`, host: IP forwarding for the families of the attachment's addresses. A node object.
    ForwardingEnable,

    /// `masquerade.ensure`, host: source NAT for the attachment's addresses.
    MasqueradeEnsure { backend: Option<Backend> },
    /// `masquerade.check`, host.
    MasqueradeCheck { backend: Option<Backend> },
    /// `masquerade.remove`, host: both backends.
    MasqueradeRemove,

    /// `mac-guard.ensure`, host: only frames with this source address pass the attachment's host end.
    MacGuardEnsure { host: Handle, mac: Mac },
    /// `mac-guard.check`, host.
    MacGuardCheck { host: Handle, mac: Mac },
    /// `mac-guard.remove`, host.
    MacGuardRemove,

    /// `ipam.add`: run ADD of the operator's `ipam.type` with the attachment's own configuration.
    IpamAdd,
    /// `ipam.del`.
    IpamDel,
    /// `ipam.check`.
    IpamCheck,
    /// `ipam.status`.
    IpamStatus,
    /// `ipam.gc`.
    IpamGc,

    /// `leases.reserve`: one address per range set for this attachment.
    LeasesReserve { sets: Vec<Vec<LeaseRange>>, requested: Vec<IpAddr> },
    /// `leases.held`: this attachment's addresses.
    LeasesHeld,
    /// `leases.release`: give up this attachment's addresses.
    LeasesRelease,
    /// `leases.retain`: free every lease of this network that the runtime's list of valid attachments lacks.
    LeasesRetain,
    /// `leases.available`: is there a free address in every range set?
    LeasesAvailable { sets: Vec<Vec<LeaseRange>> },

    /// `resolv-conf.read`: the file named by `ipam.resolvConf`, parsed.
    ResolvConfRead,

    /// `loopback.up`, container: set `lo` up.
    LoopbackUp,
    /// `loopback.down`, container: set `lo` down.
    LoopbackDown,
    /// `loopback.addresses`, container: is `lo` up, and which addresses has it?
    LoopbackAddresses,

    /// `attachments.collect`, both: remove what this plugin left for attachments of this network that the runtime's
    /// list of valid attachments lacks.
    AttachmentsCollect,
}

impl Operation {
    /// The WIT interface and function, for messages and the audit log.
    pub fn name(&self) -> &'static str {
        match self {
            Self::LinkOwn => "link.own",
            Self::LinkAttributes { .. } => "link.attributes",
            Self::LinkUp { .. } => "link.up",
            Self::LinkDelete { .. } => "link.delete",
            Self::VethCreate { .. } => "veth.create",
            Self::VethFind => "veth.find",
            Self::VethWaitRunning { .. } => "veth.wait-running",
            Self::AddressesAdd { .. } => "addresses.add",
            Self::AddressesList { .. } => "addresses.list",
            Self::AddressesSettle { .. } => "addresses.settle",
            Self::RoutesAdd { .. } => "routes.add",
            Self::RoutesRemoveConnected { .. } => "routes.remove-connected",
            Self::RoutesList { .. } => "routes.list",
            Self::SysctlSet { .. } => "link-sysctl.set",
            Self::BridgeEnsure { .. } => "bridge.ensure",
            Self::BridgeFind { .. } => "bridge.find",
            Self::BridgeAttach { .. } => "bridge.attach",
            Self::BridgeEnsureGateways { .. } => "bridge.ensure-gateways",
            Self::PointToPointEnsure { .. } => "point-to-point.ensure",
            Self::ForwardingEnable => "forwarding.enable",
            Self::MasqueradeEnsure { .. } => "masquerade.ensure",
            Self::MasqueradeCheck { .. } => "masquerade.check",
            Self::MasqueradeRemove => "masquerade.remove",
            Self::MacGuardEnsure { .. } => "mac-guard.ensure",
            Self::MacGuardCheck { .. } => "mac-guard.check",
            Self::MacGuardRemove => "mac-guard.remove",
            Self::IpamAdd => "ipam.add",
            Self::IpamDel => "ipam.del",
            Self::IpamCheck => "ipam.check",
            Self::IpamStatus => "ipam.status",
            Self::IpamGc => "ipam.gc",
            Self::LeasesReserve { .. } => "leases.reserve",
            Self::LeasesHeld => "leases.held",
            Self::LeasesRelease => "leases.release",
            Self::LeasesRetain => "leases.retain",
            Self::LeasesAvailable { .. } => "leases.available",
            Self::ResolvConfRead => "resolv-conf.read",
            Self::LoopbackUp => "loopback.up",
            Self::LoopbackDown => "loopback.down",
            Self::LoopbackAddresses => "loopback.addresses",
            Self::AttachmentsCollect => "attachments.collect",
        }
    }

    /// The WIT interface alone: what a policy grants.
    pub fn capability(&self) -> &'static str {
        self.name().split_once('.').map_or("", |(interface, _)| interface)
    }
}
