//! The texts about each capability in commands for people, one file per capability. `postern plan` describes
//! operations. `postern inspect` describes what a plugin can do through an interface. `postern learn` writes the policy
//! that the operations need.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

// each capability: mod {file};
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
// end of the list

use crate::learn::{Key, LoggedOperation, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::Group;
use postern_types::{Capability, OpError, Operation, Reply};

/// The limit for operations that use the attachment's addresses.
pub const OWN_ADDRESSES: &str =
    "only with addresses that IPAM gave this attachment: the plugin can name no other address";

/// The key for a plugin that may look at a link, but not change it. A grant without this key allows more.
const LOOK_ONLY: Key = Key::one("look-only", Source::Value("", None), WidestValue::LeftOut);

/// The texts about a capability, independent of the operation.
pub struct Page {
    /// The act that a plugin can't do if it does not import this capability.
    pub cannot: &'static str,
    /// The statement that holds for every plugin that imports this capability, under any policy.
    pub always: Option<&'static str>,
    /// The abilities of a plugin through the capability's functions.
    pub groups: &'static [Group],
    /// The capability's policy keys, with the usual sources of their values.
    pub keys: &'static [Key],
    /// The objects of an operation, by the policy keys that decide on them.
    pub objects: fn(&LoggedOperation<'_>) -> Vec<(&'static str, String)>,
}

/// The texts about one operation.
pub trait OperationTexts {
    /// Returns the operation in words, with its objects.
    fn words(&self, names: &Names<'_>, outcome: &Result<Reply, OpError>) -> String;

    /// Returns the link of the host that the operation makes if the link is missing.
    fn makes(&self) -> Option<&str> {
        None
    }
}

/// Returns the texts about a capability.
pub const fn page(capability: Capability) -> &'static Page {
    match capability {
        // each capability: Capability::{Type} => &{file}::PAGE,
        Capability::Link => &link::PAGE,
        Capability::Veth => &veth::PAGE,
        Capability::Addresses => &addresses::PAGE,
        Capability::Routes => &routes::PAGE,
        Capability::LinkSysctl => &link_sysctl::PAGE,
        Capability::Bridge => &bridge::PAGE,
        Capability::PointToPoint => &point_to_point::PAGE,
        Capability::Forwarding => &forwarding::PAGE,
        Capability::Masquerade => &masquerade::PAGE,
        Capability::MacGuard => &mac_guard::PAGE,
        Capability::Ipam => &ipam::PAGE,
        Capability::Leases => &leases::PAGE,
        Capability::ResolvConf => &resolv_conf::PAGE,
        Capability::Loopback => &loopback::PAGE,
        Capability::Attachments => &attachments::PAGE,
        Capability::Parent => &parent::PAGE,
        Capability::Macvlan => &macvlan::PAGE,
        Capability::Vlan => &vlan::PAGE,
        Capability::Ipvlan => &ipvlan::PAGE,
        Capability::Dummy => &dummy::PAGE,
        Capability::Tap => &tap::PAGE,
        Capability::Device => &device::PAGE,
        Capability::PortMappings => &port_mappings::PAGE,
        Capability::Firewall => &firewall::PAGE,
        Capability::Bandwidth => &bandwidth::PAGE,
        Capability::NamespaceSysctl => &namespace_sysctl::PAGE,
        Capability::LinkSettings => &link_settings::PAGE,
        Capability::Delegate => &delegate::PAGE,
        Capability::SourceRoutes => &source_routes::PAGE,
        Capability::Vrf => &vrf::PAGE,
        Capability::Dhcp => &dhcp::PAGE,
        Capability::Notes => &notes::PAGE,
        // end of the list
    }
}

/// Returns the texts about an operation.
pub fn operation_texts(operation: &Operation) -> &dyn OperationTexts {
    match operation {
        // each capability: Operation::{Type}(operation) => operation,
        Operation::Link(operation) => operation,
        Operation::Veth(operation) => operation,
        Operation::Addresses(operation) => operation,
        Operation::Routes(operation) => operation,
        Operation::LinkSysctl(operation) => operation,
        Operation::Bridge(operation) => operation,
        Operation::PointToPoint(operation) => operation,
        Operation::Forwarding(operation) => operation,
        Operation::Masquerade(operation) => operation,
        Operation::MacGuard(operation) => operation,
        Operation::Ipam(operation) => operation,
        Operation::Leases(operation) => operation,
        Operation::ResolvConf(operation) => operation,
        Operation::Loopback(operation) => operation,
        Operation::Attachments(operation) => operation,
        Operation::Parent(operation) => operation,
        Operation::Macvlan(operation) => operation,
        Operation::Vlan(operation) => operation,
        Operation::Ipvlan(operation) => operation,
        Operation::Dummy(operation) => operation,
        Operation::Tap(operation) => operation,
        Operation::Device(operation) => operation,
        Operation::PortMappings(operation) => operation,
        Operation::Firewall(operation) => operation,
        Operation::Bandwidth(operation) => operation,
        Operation::NamespaceSysctl(operation) => operation,
        Operation::LinkSettings(operation) => operation,
        Operation::Delegate(operation) => operation,
        Operation::SourceRoutes(operation) => operation,
        Operation::Vrf(operation) => operation,
        Operation::Dhcp(operation) => operation,
        Operation::Notes(operation) => operation,
        // end of the list
    }
}

/// Returns every group of functions with its capability, in the order of `wit/surface.toml`.
pub fn groups() -> impl Iterator<Item = (Capability, &'static Group)> {
    Capability::ALL.iter().flat_map(|capability| page(*capability).groups.iter().map(|group| (*capability, group)))
}

/// Returns the groups of functions of the interface that a component imports by this name.
pub fn groups_of(interface: &str) -> impl Iterator<Item = &'static Group> {
    Capability::parse(interface).into_iter().flat_map(|capability| page(capability).groups)
}

/// Joins several items in a sentence.
pub fn list<T: ToString>(items: impl IntoIterator<Item = T>, none: &str) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { none.to_owned() } else { items.join(", ") }
}
