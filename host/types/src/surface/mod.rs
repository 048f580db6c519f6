//! All that a guest can ask for, by capability.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

mod addresses;
mod attachments;
mod bandwidth;
mod bridge;
mod delegate;
mod device;
mod dhcp;
mod dummy;
mod firewall;
mod forwarding;
mod ipam;
mod ipvlan;
mod leases;
mod link;
mod link_settings;
mod link_sysctl;
mod loopback;
mod mac_guard;
mod macvlan;
mod masquerade;
mod namespace_sysctl;
mod notes;
mod parent;
mod point_to_point;
mod port_mappings;
mod resolv_conf;
mod routes;
mod source_routes;
mod tap;
mod veth;
mod vlan;
mod vrf;

use crate::log::Line;
use crate::table::{OperationTable, Row, Takes};
use crate::{Handle, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

/// The operations: an enum for each capability.
pub mod ops {
    pub use super::addresses::Addresses;
    pub use super::attachments::Attachments;
    pub use super::bandwidth::Bandwidth;
    pub use super::bridge::Bridge;
    pub use super::delegate::Delegate;
    pub use super::device::Device;
    pub use super::dhcp::Dhcp;
    pub use super::dummy::Dummy;
    pub use super::firewall::Firewall;
    pub use super::forwarding::Forwarding;
    pub use super::ipam::Ipam;
    pub use super::ipvlan::Ipvlan;
    pub use super::leases::Leases;
    pub use super::link::Link;
    pub use super::link_settings::LinkSettings;
    pub use super::link_sysctl::LinkSysctl;
    pub use super::loopback::Loopback;
    pub use super::mac_guard::MacGuard;
    pub use super::macvlan::Macvlan;
    pub use super::masquerade::Masquerade;
    pub use super::namespace_sysctl::NamespaceSysctl;
    pub use super::notes::Notes;
    pub use super::parent::Parent;
    pub use super::point_to_point::PointToPoint;
    pub use super::port_mappings::PortMappings;
    pub use super::resolv_conf::ResolvConf;
    pub use super::routes::Routes;
    pub use super::source_routes::SourceRoutes;
    pub use super::tap::Tap;
    pub use super::veth::Veth;
    pub use super::vlan::Vlan;
    pub use super::vrf::Vrf;
}

/// The traits that answer the operations, one for each capability.
pub mod host {
    pub use super::addresses::Host as Addresses;
    pub use super::attachments::Host as Attachments;
    pub use super::bandwidth::Host as Bandwidth;
    pub use super::bridge::Host as Bridge;
    pub use super::delegate::Host as Delegate;
    pub use super::device::Host as Device;
    pub use super::dhcp::Host as Dhcp;
    pub use super::dummy::Host as Dummy;
    pub use super::firewall::Host as Firewall;
    pub use super::forwarding::Host as Forwarding;
    pub use super::ipam::Host as Ipam;
    pub use super::ipvlan::Host as Ipvlan;
    pub use super::leases::Host as Leases;
    pub use super::link::Host as Link;
    pub use super::link_settings::Host as LinkSettings;
    pub use super::link_sysctl::Host as LinkSysctl;
    pub use super::loopback::Host as Loopback;
    pub use super::mac_guard::Host as MacGuard;
    pub use super::macvlan::Host as Macvlan;
    pub use super::masquerade::Host as Masquerade;
    pub use super::namespace_sysctl::Host as NamespaceSysctl;
    pub use super::notes::Host as Notes;
    pub use super::parent::Host as Parent;
    pub use super::point_to_point::Host as PointToPoint;
    pub use super::port_mappings::Host as PortMappings;
    pub use super::resolv_conf::Host as ResolvConf;
    pub use super::routes::Host as Routes;
    pub use super::source_routes::Host as SourceRoutes;
    pub use super::tap::Host as Tap;
    pub use super::veth::Host as Veth;
    pub use super::vlan::Host as Vlan;
    pub use super::vrf::Host as Vrf;
}

/// A WIT interface with privileges, which a policy grants. The order is that of `wit/surface.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "`wit/` describes each")]
pub enum Capability {
    Link,
    Veth,
    Addresses,
    Routes,
    LinkSysctl,
    Bridge,
    PointToPoint,
    Forwarding,
    Masquerade,
    MacGuard,
    Ipam,
    Leases,
    ResolvConf,
    Loopback,
    Attachments,
    Parent,
    Macvlan,
    Vlan,
    Ipvlan,
    Dummy,
    Tap,
    Device,
    PortMappings,
    Firewall,
    Bandwidth,
    NamespaceSysctl,
    LinkSettings,
    Delegate,
    SourceRoutes,
    Vrf,
    Dhcp,
    Notes,
}

impl Capability {
    /// All capabilities.
    pub const ALL: &'static [Self] = &[
        Self::Link,
        Self::Veth,
        Self::Addresses,
        Self::Routes,
        Self::LinkSysctl,
        Self::Bridge,
        Self::PointToPoint,
        Self::Forwarding,
        Self::Masquerade,
        Self::MacGuard,
        Self::Ipam,
        Self::Leases,
        Self::ResolvConf,
        Self::Loopback,
        Self::Attachments,
        Self::Parent,
        Self::Macvlan,
        Self::Vlan,
        Self::Ipvlan,
        Self::Dummy,
        Self::Tap,
        Self::Device,
        Self::PortMappings,
        Self::Firewall,
        Self::Bandwidth,
        Self::NamespaceSysctl,
        Self::LinkSettings,
        Self::Delegate,
        Self::SourceRoutes,
        Self::Vrf,
        Self::Dhcp,
        Self::Notes,
    ];

    /// The name of the WIT interface, and of the policy's table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Veth => "veth",
            Self::Addresses => "addresses",
            Self::Routes => "routes",
            Self::LinkSysctl => "link-sysctl",
            Self::Bridge => "bridge",
            Self::PointToPoint => "point-to-point",
            Self::Forwarding => "forwarding",
            Self::Masquerade => "masquerade",
            Self::MacGuard => "mac-guard",
            Self::Ipam => "ipam",
            Self::Leases => "leases",
            Self::ResolvConf => "resolv-conf",
            Self::Loopback => "loopback",
            Self::Attachments => "attachments",
            Self::Parent => "parent",
            Self::Macvlan => "macvlan",
            Self::Vlan => "vlan",
            Self::Ipvlan => "ipvlan",
            Self::Dummy => "dummy",
            Self::Tap => "tap",
            Self::Device => "device",
            Self::PortMappings => "port-mappings",
            Self::Firewall => "firewall",
            Self::Bandwidth => "bandwidth",
            Self::NamespaceSysctl => "namespace-sysctl",
            Self::LinkSettings => "link-settings",
            Self::Delegate => "delegate",
            Self::SourceRoutes => "source-routes",
            Self::Vrf => "vrf",
            Self::Dhcp => "dhcp",
            Self::Notes => "notes",
        }
    }

    /// The rows of the capability's operations.
    pub const fn rows(self) -> &'static [Row] {
        match self {
            Self::Link => ops::Link::ROWS,
            Self::Veth => ops::Veth::ROWS,
            Self::Addresses => ops::Addresses::ROWS,
            Self::Routes => ops::Routes::ROWS,
            Self::LinkSysctl => ops::LinkSysctl::ROWS,
            Self::Bridge => ops::Bridge::ROWS,
            Self::PointToPoint => ops::PointToPoint::ROWS,
            Self::Forwarding => ops::Forwarding::ROWS,
            Self::Masquerade => ops::Masquerade::ROWS,
            Self::MacGuard => ops::MacGuard::ROWS,
            Self::Ipam => ops::Ipam::ROWS,
            Self::Leases => ops::Leases::ROWS,
            Self::ResolvConf => ops::ResolvConf::ROWS,
            Self::Loopback => ops::Loopback::ROWS,
            Self::Attachments => ops::Attachments::ROWS,
            Self::Parent => ops::Parent::ROWS,
            Self::Macvlan => ops::Macvlan::ROWS,
            Self::Vlan => ops::Vlan::ROWS,
            Self::Ipvlan => ops::Ipvlan::ROWS,
            Self::Dummy => ops::Dummy::ROWS,
            Self::Tap => ops::Tap::ROWS,
            Self::Device => ops::Device::ROWS,
            Self::PortMappings => ops::PortMappings::ROWS,
            Self::Firewall => ops::Firewall::ROWS,
            Self::Bandwidth => ops::Bandwidth::ROWS,
            Self::NamespaceSysctl => ops::NamespaceSysctl::ROWS,
            Self::LinkSettings => ops::LinkSettings::ROWS,
            Self::Delegate => ops::Delegate::ROWS,
            Self::SourceRoutes => ops::SourceRoutes::ROWS,
            Self::Vrf => ops::Vrf::ROWS,
            Self::Dhcp => ops::Dhcp::ROWS,
            Self::Notes => ops::Notes::ROWS,
        }
    }
}

/// One privileged request. If it lacks names, paths or keys, the gate takes them from the operator's
/// configuration, the run's environment or its own record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "`wit/` describes each")]
pub enum Operation {
    Link(ops::Link),
    Veth(ops::Veth),
    Addresses(ops::Addresses),
    Routes(ops::Routes),
    LinkSysctl(ops::LinkSysctl),
    Bridge(ops::Bridge),
    PointToPoint(ops::PointToPoint),
    Forwarding(ops::Forwarding),
    Masquerade(ops::Masquerade),
    MacGuard(ops::MacGuard),
    Ipam(ops::Ipam),
    Leases(ops::Leases),
    ResolvConf(ops::ResolvConf),
    Loopback(ops::Loopback),
    Attachments(ops::Attachments),
    Parent(ops::Parent),
    Macvlan(ops::Macvlan),
    Vlan(ops::Vlan),
    Ipvlan(ops::Ipvlan),
    Dummy(ops::Dummy),
    Tap(ops::Tap),
    Device(ops::Device),
    PortMappings(ops::PortMappings),
    Firewall(ops::Firewall),
    Bandwidth(ops::Bandwidth),
    NamespaceSysctl(ops::NamespaceSysctl),
    LinkSettings(ops::LinkSettings),
    Delegate(ops::Delegate),
    SourceRoutes(ops::SourceRoutes),
    Vrf(ops::Vrf),
    Dhcp(ops::Dhcp),
    Notes(ops::Notes),
}

/// Answers every operation.
pub trait Host:
    host::Link
    + host::Veth
    + host::Addresses
    + host::Routes
    + host::LinkSysctl
    + host::Bridge
    + host::PointToPoint
    + host::Forwarding
    + host::Masquerade
    + host::MacGuard
    + host::Ipam
    + host::Leases
    + host::ResolvConf
    + host::Loopback
    + host::Attachments
    + host::Parent
    + host::Macvlan
    + host::Vlan
    + host::Ipvlan
    + host::Dummy
    + host::Tap
    + host::Device
    + host::PortMappings
    + host::Firewall
    + host::Bandwidth
    + host::NamespaceSysctl
    + host::LinkSettings
    + host::Delegate
    + host::SourceRoutes
    + host::Vrf
    + host::Dhcp
    + host::Notes
{
}

impl Operation {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Link(operation) => operation.ask(node),
            Self::Veth(operation) => operation.ask(node),
            Self::Addresses(operation) => operation.ask(node),
            Self::Routes(operation) => operation.ask(node),
            Self::LinkSysctl(operation) => operation.ask(node),
            Self::Bridge(operation) => operation.ask(node),
            Self::PointToPoint(operation) => operation.ask(node),
            Self::Forwarding(operation) => operation.ask(node),
            Self::Masquerade(operation) => operation.ask(node),
            Self::MacGuard(operation) => operation.ask(node),
            Self::Ipam(operation) => operation.ask(node),
            Self::Leases(operation) => operation.ask(node),
            Self::ResolvConf(operation) => operation.ask(node),
            Self::Loopback(operation) => operation.ask(node),
            Self::Attachments(operation) => operation.ask(node),
            Self::Parent(operation) => operation.ask(node),
            Self::Macvlan(operation) => operation.ask(node),
            Self::Vlan(operation) => operation.ask(node),
            Self::Ipvlan(operation) => operation.ask(node),
            Self::Dummy(operation) => operation.ask(node),
            Self::Tap(operation) => operation.ask(node),
            Self::Device(operation) => operation.ask(node),
            Self::PortMappings(operation) => operation.ask(node),
            Self::Firewall(operation) => operation.ask(node),
            Self::Bandwidth(operation) => operation.ask(node),
            Self::NamespaceSysctl(operation) => operation.ask(node),
            Self::LinkSettings(operation) => operation.ask(node),
            Self::Delegate(operation) => operation.ask(node),
            Self::SourceRoutes(operation) => operation.ask(node),
            Self::Vrf(operation) => operation.ask(node),
            Self::Dhcp(operation) => operation.ask(node),
            Self::Notes(operation) => operation.ask(node),
        }
    }

    /// Returns the capability that policy has to grant.
    pub fn capability(&self) -> Capability {
        match self {
            Self::Link(_) => Capability::Link,
            Self::Veth(_) => Capability::Veth,
            Self::Addresses(_) => Capability::Addresses,
            Self::Routes(_) => Capability::Routes,
            Self::LinkSysctl(_) => Capability::LinkSysctl,
            Self::Bridge(_) => Capability::Bridge,
            Self::PointToPoint(_) => Capability::PointToPoint,
            Self::Forwarding(_) => Capability::Forwarding,
            Self::Masquerade(_) => Capability::Masquerade,
            Self::MacGuard(_) => Capability::MacGuard,
            Self::Ipam(_) => Capability::Ipam,
            Self::Leases(_) => Capability::Leases,
            Self::ResolvConf(_) => Capability::ResolvConf,
            Self::Loopback(_) => Capability::Loopback,
            Self::Attachments(_) => Capability::Attachments,
            Self::Parent(_) => Capability::Parent,
            Self::Macvlan(_) => Capability::Macvlan,
            Self::Vlan(_) => Capability::Vlan,
            Self::Ipvlan(_) => Capability::Ipvlan,
            Self::Dummy(_) => Capability::Dummy,
            Self::Tap(_) => Capability::Tap,
            Self::Device(_) => Capability::Device,
            Self::PortMappings(_) => Capability::PortMappings,
            Self::Firewall(_) => Capability::Firewall,
            Self::Bandwidth(_) => Capability::Bandwidth,
            Self::NamespaceSysctl(_) => Capability::NamespaceSysctl,
            Self::LinkSettings(_) => Capability::LinkSettings,
            Self::Delegate(_) => Capability::Delegate,
            Self::SourceRoutes(_) => Capability::SourceRoutes,
            Self::Vrf(_) => Capability::Vrf,
            Self::Dhcp(_) => Capability::Dhcp,
            Self::Notes(_) => Capability::Notes,
        }
    }

    /// Returns the operation's row in the table of the capability.
    pub fn row(&self) -> &'static Row {
        match self {
            Self::Link(operation) => operation.row(),
            Self::Veth(operation) => operation.row(),
            Self::Addresses(operation) => operation.row(),
            Self::Routes(operation) => operation.row(),
            Self::LinkSysctl(operation) => operation.row(),
            Self::Bridge(operation) => operation.row(),
            Self::PointToPoint(operation) => operation.row(),
            Self::Forwarding(operation) => operation.row(),
            Self::Masquerade(operation) => operation.row(),
            Self::MacGuard(operation) => operation.row(),
            Self::Ipam(operation) => operation.row(),
            Self::Leases(operation) => operation.row(),
            Self::ResolvConf(operation) => operation.row(),
            Self::Loopback(operation) => operation.row(),
            Self::Attachments(operation) => operation.row(),
            Self::Parent(operation) => operation.row(),
            Self::Macvlan(operation) => operation.row(),
            Self::Vlan(operation) => operation.row(),
            Self::Ipvlan(operation) => operation.row(),
            Self::Dummy(operation) => operation.row(),
            Self::Tap(operation) => operation.row(),
            Self::Device(operation) => operation.row(),
            Self::PortMappings(operation) => operation.row(),
            Self::Firewall(operation) => operation.row(),
            Self::Bandwidth(operation) => operation.row(),
            Self::NamespaceSysctl(operation) => operation.row(),
            Self::LinkSettings(operation) => operation.row(),
            Self::Delegate(operation) => operation.row(),
            Self::SourceRoutes(operation) => operation.row(),
            Self::Vrf(operation) => operation.row(),
            Self::Dhcp(operation) => operation.row(),
            Self::Notes(operation) => operation.row(),
        }
    }

    /// Returns the operation's handles, each with the kind of object that the handle must stand for.
    pub fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        match self {
            Self::Link(operation) => operation.handles(),
            Self::Veth(operation) => operation.handles(),
            Self::Addresses(operation) => operation.handles(),
            Self::Routes(operation) => operation.handles(),
            Self::LinkSysctl(operation) => operation.handles(),
            Self::Bridge(operation) => operation.handles(),
            Self::PointToPoint(operation) => operation.handles(),
            Self::Forwarding(operation) => operation.handles(),
            Self::Masquerade(operation) => operation.handles(),
            Self::MacGuard(operation) => operation.handles(),
            Self::Ipam(operation) => operation.handles(),
            Self::Leases(operation) => operation.handles(),
            Self::ResolvConf(operation) => operation.handles(),
            Self::Loopback(operation) => operation.handles(),
            Self::Attachments(operation) => operation.handles(),
            Self::Parent(operation) => operation.handles(),
            Self::Macvlan(operation) => operation.handles(),
            Self::Vlan(operation) => operation.handles(),
            Self::Ipvlan(operation) => operation.handles(),
            Self::Dummy(operation) => operation.handles(),
            Self::Tap(operation) => operation.handles(),
            Self::Device(operation) => operation.handles(),
            Self::PortMappings(operation) => operation.handles(),
            Self::Firewall(operation) => operation.handles(),
            Self::Bandwidth(operation) => operation.handles(),
            Self::NamespaceSysctl(operation) => operation.handles(),
            Self::LinkSettings(operation) => operation.handles(),
            Self::Delegate(operation) => operation.handles(),
            Self::SourceRoutes(operation) => operation.handles(),
            Self::Vrf(operation) => operation.handles(),
            Self::Dhcp(operation) => operation.handles(),
            Self::Notes(operation) => operation.handles(),
        }
    }

    pub(crate) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Link(operation) => operation.log(line),
            Self::Veth(operation) => operation.log(line),
            Self::Addresses(operation) => operation.log(line),
            Self::Routes(operation) => operation.log(line),
            Self::LinkSysctl(operation) => operation.log(line),
            Self::Bridge(operation) => operation.log(line),
            Self::PointToPoint(operation) => operation.log(line),
            Self::Forwarding(operation) => operation.log(line),
            Self::Masquerade(operation) => operation.log(line),
            Self::MacGuard(operation) => operation.log(line),
            Self::Ipam(operation) => operation.log(line),
            Self::Leases(operation) => operation.log(line),
            Self::ResolvConf(operation) => operation.log(line),
            Self::Loopback(operation) => operation.log(line),
            Self::Attachments(operation) => operation.log(line),
            Self::Parent(operation) => operation.log(line),
            Self::Macvlan(operation) => operation.log(line),
            Self::Vlan(operation) => operation.log(line),
            Self::Ipvlan(operation) => operation.log(line),
            Self::Dummy(operation) => operation.log(line),
            Self::Tap(operation) => operation.log(line),
            Self::Device(operation) => operation.log(line),
            Self::PortMappings(operation) => operation.log(line),
            Self::Firewall(operation) => operation.log(line),
            Self::Bandwidth(operation) => operation.log(line),
            Self::NamespaceSysctl(operation) => operation.log(line),
            Self::LinkSettings(operation) => operation.log(line),
            Self::Delegate(operation) => operation.log(line),
            Self::SourceRoutes(operation) => operation.log(line),
            Self::Vrf(operation) => operation.log(line),
            Self::Dhcp(operation) => operation.log(line),
            Self::Notes(operation) => operation.log(line),
        }
    }
}
