//! The policy of each capability, one file for each.
//!
//! A file has the keys of the capability's table, the policy rule for each operation, and the objects of the
//! configuration that this rule needs. Capabilities that are only granted or not have a row here. In either place, an
//! operation without a rule does not compile.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

// each capability with keys: pub mod {file};
pub mod bridge;
pub mod delegate;
pub mod device;
pub mod dhcp;
pub mod dummy;
pub mod firewall;
pub mod ipam;
pub mod ipvlan;
pub mod leases;
pub mod link;
pub mod link_settings;
pub mod mac_guard;
pub mod macvlan;
pub mod masquerade;
pub mod namespace_sysctl;
pub mod parent;
pub mod port_mappings;
pub mod resolv_conf;
pub mod source_routes;
pub mod tap;
pub mod veth;
pub mod vlan;
pub mod vrf;
// end of the list

mod prelude;

use postern_cni::NetConf;
use postern_types::{Lasting, Operation};
use prelude::*;

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
    fn objects(&self, _: &RuleInput<'_>) -> Vec<Change> {
        Vec::new()
    }
}

/// Capabilities that a policy grants or not, with all of their operations: none names an object that a policy could choose. An
/// operation that is not in its row does not compile.
macro_rules! granted_or_not {
    ($($operations:ident: $($operation:ident),+;)+) => {
        $(impl Decide for ops::$operations {
            fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
                match self {
                    $(Self::$operation { .. })|+ => granted(input, grant),
                }
            }
        })+
    };
}

granted_or_not! {
    // These have keys for something else. A dummy is only the attachment's own link, and the gate guards no other one.
    Dummy: Create;
    MacGuard: Ensure, Check, Remove;
    // each capability without keys: {Type}: {Operations};
    Addresses: Add, List, Has, Settle;
    Routes: Add, RemoveConnected, List, Has;
    LinkSysctl: Set;
    PointToPoint: Ensure;
    Forwarding: Enable;
    Loopback: Up, Down, Addresses;
    Attachments: Collect;
    Bandwidth: Limit, Check, Remove;
    Notes: Set, Get;
    // end of the list
}

/// The rule of an operation without an object: what changes something needs a grant that is for more than looking.
fn granted(input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
    if input.question.operation.lasting() == Lasting::Nothing { Ok(grant.name) } else { input.changes(grant) }
}

/// Returns a text of the configuration's `ipam` that is not empty. One of the wrong type counts as absent: the plugin refuses
/// it.
fn ipam_text(conf: &NetConf, key: &str) -> Option<String> {
    let ipam = conf.fields().object("ipam").ok().flatten()?;
    ipam.string(key).ok().flatten().filter(|text| !text.is_empty())
}

/// Returns the decisions on an operation.
pub fn of(operation: &Operation) -> &dyn Decide {
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

/// Returns the keys of `[grant.NAME]`. The list is empty if there is nothing to choose.
pub const fn keys(capability: Capability) -> &'static [Key] {
    match capability {
        // each capability with keys: Capability::{Type} => {file}::KEYS,
        Capability::Link => link::KEYS,
        Capability::Veth => veth::KEYS,
        Capability::Bridge => bridge::KEYS,
        Capability::Masquerade => masquerade::KEYS,
        Capability::MacGuard => mac_guard::KEYS,
        Capability::Ipam => ipam::KEYS,
        Capability::Leases => leases::KEYS,
        Capability::ResolvConf => resolv_conf::KEYS,
        Capability::Parent => parent::KEYS,
        Capability::Macvlan => macvlan::KEYS,
        Capability::Vlan => vlan::KEYS,
        Capability::Ipvlan => ipvlan::KEYS,
        Capability::Dummy => dummy::KEYS,
        Capability::Tap => tap::KEYS,
        Capability::Device => device::KEYS,
        Capability::PortMappings => port_mappings::KEYS,
        Capability::Firewall => firewall::KEYS,
        Capability::NamespaceSysctl => namespace_sysctl::KEYS,
        Capability::LinkSettings => link_settings::KEYS,
        Capability::Delegate => delegate::KEYS,
        Capability::SourceRoutes => source_routes::KEYS,
        Capability::Vrf => vrf::KEYS,
        Capability::Dhcp => dhcp::KEYS,
        // end of the list
        // each capability without keys: Capability::{Type} => &[],
        Capability::Addresses => &[],
        Capability::Routes => &[],
        Capability::LinkSysctl => &[],
        Capability::PointToPoint => &[],
        Capability::Forwarding => &[],
        Capability::Loopback => &[],
        Capability::Attachments => &[],
        Capability::Bandwidth => &[],
        Capability::Notes => &[],
        // end of the list
    }
}
