//! The execution of operations: one file per WIT interface, or one folder if the operations have their own effects.
//!
//! A function here may assume that policy allows the operation on its object. The function checks the conditions for
//! all plugins: handles are valid, and addresses belong to the attachment.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

pub mod facts;
mod in_the_way;
pub mod inner;
pub mod leaves;
pub mod shared;

// each capability: pub mod {file};
pub mod addresses;
pub mod attachments;
pub mod bandwidth;
pub mod bridge;
pub mod delegate;
pub mod device;
pub mod dhcp;
pub mod dummy;
pub mod firewall;
pub mod forwarding;
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
pub mod notes;
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
// end of the list

use crate::gate::{DelegateRun, Gate};
use facts::Facts;
use postern_types::{Capability, Host, OpError, Operation};

/// Returns a capability's facts, which the host needs in addition to the capability's operations.
pub const fn facts(capability: Capability) -> &'static Facts {
    match capability {
        // each capability: Capability::{Type} => &{file}::FACTS,
        Capability::Link => &link::FACTS,
        Capability::Veth => &veth::FACTS,
        Capability::Addresses => &addresses::FACTS,
        Capability::Routes => &routes::FACTS,
        Capability::LinkSysctl => &link_sysctl::FACTS,
        Capability::Bridge => &bridge::FACTS,
        Capability::PointToPoint => &point_to_point::FACTS,
        Capability::Forwarding => &forwarding::FACTS,
        Capability::Masquerade => &masquerade::FACTS,
        Capability::MacGuard => &mac_guard::FACTS,
        Capability::Ipam => &ipam::FACTS,
        Capability::Leases => &leases::FACTS,
        Capability::ResolvConf => &resolv_conf::FACTS,
        Capability::Loopback => &loopback::FACTS,
        Capability::Attachments => &attachments::FACTS,
        Capability::Parent => &parent::FACTS,
        Capability::Macvlan => &macvlan::FACTS,
        Capability::Vlan => &vlan::FACTS,
        Capability::Ipvlan => &ipvlan::FACTS,
        Capability::Dummy => &dummy::FACTS,
        Capability::Tap => &tap::FACTS,
        Capability::Device => &device::FACTS,
        Capability::PortMappings => &port_mappings::FACTS,
        Capability::Firewall => &firewall::FACTS,
        Capability::Bandwidth => &bandwidth::FACTS,
        Capability::NamespaceSysctl => &namespace_sysctl::FACTS,
        Capability::LinkSettings => &link_settings::FACTS,
        Capability::Delegate => &delegate::FACTS,
        Capability::SourceRoutes => &source_routes::FACTS,
        Capability::Vrf => &vrf::FACTS,
        Capability::Dhcp => &dhcp::FACTS,
        Capability::Notes => &notes::FACTS,
        // end of the list
    }
}

/// The gate answers every operation that policy allows.
impl Host for Gate<'_> {}

/// Returns the delegate that has to run before the gate can answer an operation. [`Gate::ran`] then has the delegate's
/// outcome.
pub(crate) fn delegate_of(gate: &mut Gate<'_>, operation: &Operation) -> Result<Option<DelegateRun>, OpError> {
    if let Operation::Ipam(operation) = operation {
        return ipam::delegate_of(gate, operation);
    }
    if let Operation::Delegate(operation) = operation {
        return delegate::delegate_of(gate, operation);
    }
    Ok(None)
}
