//! The policy of each capability, one file for each.
//!
//! A file has the keys of the capability's table, the policy rule for each operation, and the objects of the
//! configuration that this rule needs. An operation without such a rule does not compile.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

mod addresses;
mod attachments;
mod bandwidth;
mod bridge;
pub mod delegate;
pub mod device;
pub mod dhcp;
mod dummy;
pub mod firewall;
mod forwarding;
mod ipam;
mod ipvlan;
pub mod leases;
mod link;
pub mod link_settings;
mod link_sysctl;
mod loopback;
mod mac_guard;
mod macvlan;
mod masquerade;
pub mod namespace_sysctl;
mod parent;
mod point_to_point;
mod port_mappings;
pub mod resolv_conf;
mod routes;
mod source_routes;
mod tap;
mod veth;
mod vlan;
mod vrf;

use crate::grammar::Key;
use crate::granted::Grant;
use crate::line::Change;
use crate::rules::RuleInput;
use alloc::vec::Vec;
use postern_types::{Capability, OpError, Operation};

/// The decisions on the operations of one capability.
pub trait Decide {
    /// The capability whose grant is needed. It is the operation's own, except to look at an object that another
    /// capability gave out.
    fn granted_by(&self, input: &RuleInput<'_>) -> Capability {
        input.question.operation.capability()
    }

    /// The rule that allows the operation under this grant: the capability, and the key if an object was chosen.
    ///
    /// # Errors
    /// The refusal, with the way out.
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError>;

    /// The objects that the operation names, or the configuration names for it. A new table for it must contain them.
    fn objects(&self, input: &RuleInput<'_>) -> Vec<Change>;

    /// True if the operation helps to remove the attachment's own effects, on its DEL.
    ///
    /// That needs no grant. Otherwise a policy that has changed since the ADD would keep the effects, and the runtime
    /// would retry for ever.
    ///
    /// It must not widen anything: such an operation names no object, and acts on the one attachment that the runtime
    /// wants to remove.
    fn gives_up(&self, input: &RuleInput<'_>) -> bool;
}

/// Returns the decisions on an operation.
pub fn of(operation: &Operation) -> &dyn Decide {
    match operation {
        Operation::Link(operation) => operation,
        Operation::Veth(operation) => operation,
        Operation::Addresses(operation) => operation,
        Operation::Routes(operation) => operation,
        Operation::LinkSysctl(operation) => operation,
        Operation::Bridge(operation) => operation,
        Operation::Parent(operation) => operation,
        Operation::Macvlan(operation) => operation,
        Operation::Vlan(operation) => operation,
        Operation::Ipvlan(operation) => operation,
        Operation::Dummy(operation) => operation,
        Operation::Tap(operation) => operation,
        Operation::Device(operation) => operation,
        Operation::Firewall(operation) => operation,
        Operation::Bandwidth(operation) => operation,
        Operation::PointToPoint(operation) => operation,
        Operation::PortMappings(operation) => operation,
        Operation::Forwarding(operation) => operation,
        Operation::Masquerade(operation) => operation,
        Operation::MacGuard(operation) => operation,
        Operation::Ipam(operation) => operation,
        Operation::Leases(operation) => operation,
        Operation::ResolvConf(operation) => operation,
        Operation::Loopback(operation) => operation,
        Operation::Attachments(operation) => operation,
        Operation::NamespaceSysctl(operation) => operation,
        Operation::LinkSettings(operation) => operation,
        Operation::Delegate(operation) => operation,
        Operation::SourceRoutes(operation) => operation,
        Operation::Vrf(operation) => operation,
        Operation::Dhcp(operation) => operation,
    }
}

/// Returns the keys of `[grant.NAME]`. The list is empty if there is nothing to choose.
pub const fn keys(capability: Capability) -> &'static [Key] {
    match capability {
        Capability::Link => link::KEYS,
        Capability::Veth => veth::KEYS,
        Capability::Addresses => addresses::KEYS,
        Capability::Routes => routes::KEYS,
        Capability::LinkSysctl => link_sysctl::KEYS,
        Capability::Bridge => bridge::KEYS,
        Capability::Parent => parent::KEYS,
        Capability::Macvlan => macvlan::KEYS,
        Capability::Vlan => vlan::KEYS,
        Capability::Ipvlan => ipvlan::KEYS,
        Capability::Dummy => dummy::KEYS,
        Capability::Tap => tap::KEYS,
        Capability::Device => device::KEYS,
        Capability::Firewall => firewall::KEYS,
        Capability::Bandwidth => bandwidth::KEYS,
        Capability::PointToPoint => point_to_point::KEYS,
        Capability::PortMappings => port_mappings::KEYS,
        Capability::Forwarding => forwarding::KEYS,
        Capability::Masquerade => masquerade::KEYS,
        Capability::MacGuard => mac_guard::KEYS,
        Capability::Ipam => ipam::KEYS,
        Capability::Leases => leases::KEYS,
        Capability::ResolvConf => resolv_conf::KEYS,
        Capability::Loopback => loopback::KEYS,
        Capability::Attachments => attachments::KEYS,
        Capability::NamespaceSysctl => namespace_sysctl::KEYS,
        Capability::LinkSettings => link_settings::KEYS,
        Capability::Delegate => delegate::KEYS,
        Capability::SourceRoutes => source_routes::KEYS,
        Capability::Vrf => vrf::KEYS,
        Capability::Dhcp => dhcp::KEYS,
    }
}
