//! What the operations do: one file per WIT interface.
//!
//! A function here may assume that policy allows the operation on the object that it names. It checks what holds for
//! every plugin: handles, and that addresses are the attachment's own.

pub mod addresses;
pub mod attachments;
pub mod bridge;
pub mod forwarding;
pub mod ipam;
pub mod leases;
pub mod link;
pub mod link_sysctl;
pub mod loopback;
pub mod mac_guard;
pub mod masquerade;
pub mod point_to_point;
pub mod resolv_conf;
pub mod routes;
pub mod veth;

use crate::gate::Gate;
use crate::session::Session;
use postern_types::{Capability, OpError, Operation, Reply};

/// Removes what attachments that are not among these (container ID and interface name) have left of one capability and no
/// record tells of: a native plugin made it, or it lost its record. Returns how much that was.
pub type Unrecorded = fn(&Session, &[(String, String)]) -> Result<usize, OpError>;

/// What finds such traces of a capability, where they tell their network by themselves; those of the others go with a link or
/// by a record.
pub fn unrecorded(capability: Capability) -> Option<Unrecorded> {
    match capability {
        Capability::Masquerade => Some(masquerade::collect),
        Capability::Link
        | Capability::Veth
        | Capability::Addresses
        | Capability::Routes
        | Capability::LinkSysctl
        | Capability::Bridge
        | Capability::PointToPoint
        | Capability::Forwarding
        | Capability::MacGuard
        | Capability::Ipam
        | Capability::Leases
        | Capability::ResolvConf
        | Capability::Loopback
        | Capability::Attachments => None,
    }
}

/// Carries out an operation that policy allows.
///
/// # Errors
/// What the guest gets to see.
pub fn execute(gate: &mut Gate<'_>, operation: &Operation) -> Result<Reply, OpError> {
    match operation {
        Operation::Link(operation) => link::execute(gate, operation),
        Operation::Veth(operation) => veth::execute(gate, operation),
        Operation::Addresses(operation) => addresses::execute(gate, operation),
        Operation::Routes(operation) => routes::execute(gate, operation),
        Operation::LinkSysctl(operation) => link_sysctl::execute(gate, operation),
        Operation::Bridge(operation) => bridge::execute(gate, operation),
        Operation::PointToPoint(operation) => point_to_point::execute(gate, operation),
        Operation::Forwarding(operation) => forwarding::execute(gate, operation),
        Operation::Masquerade(operation) => masquerade::execute(gate, operation),
        Operation::MacGuard(operation) => mac_guard::execute(gate, operation),
        Operation::Ipam(operation) => ipam::execute(gate, operation),
        Operation::Leases(operation) => leases::execute(gate, operation),
        Operation::ResolvConf(operation) => resolv_conf::execute(gate, operation),
        Operation::Loopback(operation) => loopback::execute(gate, operation),
        Operation::Attachments(operation) => attachments::execute(gate, operation),
    }
}
