//! The effects of the operations on the simulated node: one file per capability.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

mod addresses;
mod attachments;
mod bandwidth;
mod bridge;
mod delegate;
mod device;
pub mod dhcp;
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

use crate::kernel::Kernel;
use postern_types::{OpError, Operation, Reply};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &Operation) -> Result<Reply, OpError> {
    match operation {
        Operation::Link(operation) => link::answer(kernel, operation),
        Operation::Veth(operation) => veth::answer(kernel, operation),
        Operation::Addresses(operation) => addresses::answer(kernel, operation),
        Operation::Routes(operation) => routes::answer(kernel, operation),
        Operation::LinkSysctl(operation) => link_sysctl::answer(kernel, operation),
        Operation::Bridge(operation) => bridge::answer(kernel, operation),
        Operation::Parent(operation) => parent::answer(kernel, operation),
        Operation::Macvlan(operation) => macvlan::answer(kernel, operation),
        Operation::Vlan(operation) => vlan::answer(kernel, operation),
        Operation::Ipvlan(operation) => ipvlan::answer(kernel, operation),
        Operation::Dummy(operation) => dummy::answer(kernel, operation),
        Operation::Tap(operation) => tap::answer(kernel, operation),
        Operation::Device(operation) => device::answer(kernel, operation),
        Operation::Firewall(operation) => firewall::answer(kernel, operation),
        Operation::Bandwidth(operation) => bandwidth::answer(kernel, operation),
        Operation::PointToPoint(operation) => point_to_point::answer(kernel, operation),
        Operation::PortMappings(operation) => port_mappings::answer(kernel, operation),
        Operation::Forwarding(operation) => forwarding::answer(kernel, operation),
        Operation::Masquerade(operation) => masquerade::answer(kernel, operation),
        Operation::MacGuard(operation) => mac_guard::answer(kernel, operation),
        Operation::Ipam(operation) => ipam::answer(kernel, operation),
        Operation::Leases(operation) => leases::answer(kernel, operation),
        Operation::ResolvConf(operation) => resolv_conf::answer(kernel, operation),
        Operation::Loopback(operation) => loopback::answer(kernel, operation),
        Operation::Attachments(operation) => attachments::answer(kernel, operation),
        Operation::NamespaceSysctl(operation) => namespace_sysctl::answer(kernel, operation),
        Operation::LinkSettings(operation) => link_settings::answer(kernel, operation),
        Operation::Delegate(operation) => delegate::answer(kernel, operation),
        Operation::SourceRoutes(operation) => source_routes::answer(kernel, operation),
        Operation::Vrf(operation) => vrf::answer(kernel, operation),
        Operation::Dhcp(operation) => dhcp::answer(kernel, operation),
    }
}
