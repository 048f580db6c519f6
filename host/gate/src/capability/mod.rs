//! The execution of operations: one file per WIT interface.
//!
//! A function here may assume that policy allows the operation on the object that it names. It checks the rules that
//! hold for every plugin: handles, and that addresses are the attachment's own.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

pub mod addresses;
pub mod attachments;
pub mod bandwidth;
pub mod bridge;
pub mod delegate;
pub mod device;
pub mod dhcp;
pub mod dummy;
pub mod facts;
pub mod firewall;
pub mod forwarding;
mod in_the_way;
mod inner;
pub mod ipam;
pub mod ipvlan;
pub mod leases;
pub mod link;
pub mod link_settings;
pub mod link_sysctl;
pub mod loopback;
pub mod mac_guard;
pub mod macvlan;
pub mod masquerade;
pub mod namespace_sysctl;
pub mod parent;
pub mod point_to_point;
pub mod port_mappings;
pub mod resolv_conf;
pub mod routes;
pub mod source_routes;
pub mod tap;
pub mod veth;
pub mod vlan;
pub mod vrf;

use crate::gate::Gate;
use facts::Facts;
use postern_types::{Capability, OpError, Operation, Reply};

/// Returns the facts about a capability that the host needs beside its operations.
pub const fn facts(capability: Capability) -> &'static Facts {
    match capability {
        Capability::Link => &link::FACTS,
        Capability::Veth => &veth::FACTS,
        Capability::Addresses => &addresses::FACTS,
        Capability::Routes => &routes::FACTS,
        Capability::LinkSysctl => &link_sysctl::FACTS,
        Capability::Bridge => &bridge::FACTS,
        Capability::Parent => &parent::FACTS,
        Capability::Macvlan => &macvlan::FACTS,
        Capability::Vlan => &vlan::FACTS,
        Capability::Ipvlan => &ipvlan::FACTS,
        Capability::Dummy => &dummy::FACTS,
        Capability::Tap => &tap::FACTS,
        Capability::Device => &device::FACTS,
        Capability::Firewall => &firewall::FACTS,
        Capability::Bandwidth => &bandwidth::FACTS,
        Capability::PointToPoint => &point_to_point::FACTS,
        Capability::PortMappings => &port_mappings::FACTS,
        Capability::Forwarding => &forwarding::FACTS,
        Capability::Masquerade => &masquerade::FACTS,
        Capability::MacGuard => &mac_guard::FACTS,
        Capability::Ipam => &ipam::FACTS,
        Capability::Leases => &leases::FACTS,
        Capability::ResolvConf => &resolv_conf::FACTS,
        Capability::Loopback => &loopback::FACTS,
        Capability::Attachments => &attachments::FACTS,
        Capability::NamespaceSysctl => &namespace_sysctl::FACTS,
        Capability::LinkSettings => &link_settings::FACTS,
        Capability::Delegate => &delegate::FACTS,
        Capability::SourceRoutes => &source_routes::FACTS,
        Capability::Vrf => &vrf::FACTS,
        Capability::Dhcp => &dhcp::FACTS,
    }
}

/// Carries out an operation that policy allows.
///
/// # Errors
/// The error that the guest gets.
pub fn execute(gate: &mut Gate<'_>, operation: &Operation) -> Result<Reply, OpError> {
    match operation {
        Operation::Link(operation) => link::execute(gate, operation),
        Operation::Veth(operation) => veth::execute(gate, operation),
        Operation::Addresses(operation) => addresses::execute(gate, operation),
        Operation::Routes(operation) => routes::execute(gate, operation),
        Operation::LinkSysctl(operation) => link_sysctl::execute(gate, operation),
        Operation::Bridge(operation) => bridge::execute(gate, operation),
        Operation::Parent(operation) => parent::execute(gate, operation),
        Operation::Macvlan(operation) => macvlan::execute(gate, operation),
        Operation::Vlan(operation) => vlan::execute(gate, operation),
        Operation::Ipvlan(operation) => ipvlan::execute(gate, operation),
        Operation::Dummy(operation) => dummy::execute(gate, operation),
        Operation::Tap(operation) => tap::execute(gate, operation),
        Operation::Device(operation) => device::execute(gate, operation),
        Operation::Firewall(operation) => firewall::execute(gate, operation),
        Operation::Bandwidth(operation) => bandwidth::execute(gate, operation),
        Operation::PointToPoint(operation) => point_to_point::execute(gate, operation),
        Operation::PortMappings(operation) => port_mappings::execute(gate, operation),
        Operation::Forwarding(operation) => forwarding::execute(gate, operation),
        Operation::Masquerade(operation) => masquerade::execute(gate, operation),
        Operation::MacGuard(operation) => mac_guard::execute(gate, operation),
        Operation::Ipam(operation) => ipam::execute(gate, operation),
        Operation::Leases(operation) => leases::execute(gate, operation),
        Operation::ResolvConf(operation) => resolv_conf::execute(gate, operation),
        Operation::Loopback(operation) => loopback::execute(gate, operation),
        Operation::Attachments(operation) => attachments::execute(gate, operation),
        Operation::NamespaceSysctl(operation) => namespace_sysctl::execute(gate, operation),
        Operation::LinkSettings(operation) => link_settings::execute(gate, operation),
        Operation::Delegate(operation) => delegate::execute(gate, operation),
        Operation::SourceRoutes(operation) => source_routes::execute(gate, operation),
        Operation::Vrf(operation) => vrf::execute(gate, operation),
        Operation::Dhcp(operation) => dhcp::execute(gate, operation),
    }
}
