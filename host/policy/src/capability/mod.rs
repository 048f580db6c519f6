//! The policies of the capabilities, one file for each capability.
//!
//! A file has the keys of the capability's table, the policy rule for each operation, and the objects of the
//! configuration that this rule needs. Capabilities whose operations choose no object have a row here. An operation
//! that has no rule does not compile.

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
    /// The capability whose grant is needed. Usually this is the operation's own capability. A look at an object needs
    /// the capability that gave out the object.
    fn granted_by(&self, input: &RuleInput<'_>) -> Capability {
        input.question.operation.capability()
    }

    /// The rule that allows the operation under this grant: the capability, and the key if an object was chosen.
    ///
    /// # Errors
    /// The refusal, with a hint how to allow the operation.
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError>;

    /// The objects that the operation names, or that the configuration names for it. A new table that allows the
    /// operation must contain these objects. The default is the object that the rule misses in an empty table.
    fn objects(&self, input: &RuleInput<'_>) -> Vec<Change> {
        let _ = self.rule(input, &Grant::EMPTY);
        input.asked.take()
    }
}

/// Capabilities that a policy grants as a whole, with all their operations. No operation names an object that a policy
/// could choose. If a row lacks an operation, the code does not compile.
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
    // The keys of these capabilities concern other decisions. The operations choose no object: they make or guard only
    // the attachment's own link.
    Dummy: Create;
    MacGuard: Ensure, Check, Remove;
}

/// The rule of an operation without an object. An operation that changes something needs a grant without `look-only`.
fn granted(input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
    if input.question.operation.lasting() == Lasting::Nothing { Ok(grant.name) } else { input.changes(grant) }
}

/// Returns a text of the configuration's `ipam` that is not empty. A text of the wrong type counts as absent: the
/// plugin refuses it.
fn ipam_text(conf: &NetConf, key: &str) -> Option<String> {
    let ipam = conf.fields().object("ipam").ok().flatten()?;
    ipam.string(key).ok().flatten().filter(|text| !text.is_empty())
}

/// All capabilities. A capability with keys has a file; a capability without keys is granted as a whole.
macro_rules! capabilities {
    (with keys { $($with:ident: $file:ident;)+ } without keys { $($without:ident: $($operation:ident),+;)+ }) => {
        granted_or_not! { $($without: $($operation),+;)+ }

        /// Returns the decisions on an operation.
        pub fn of(operation: &Operation) -> &dyn Decide {
            match operation {
                $(Operation::$with(operation) => operation,)+
                $(Operation::$without(operation) => operation,)+
            }
        }

        /// Returns the keys of `[grant.NAME]`. The list is empty if the capability has no keys.
        pub const fn keys(capability: Capability) -> &'static [Key] {
            match capability {
                $(Capability::$with => $file::KEYS,)+
                $(Capability::$without)|+ => &[],
            }
        }
    };
}

capabilities! {
    with keys {
        // each capability with keys: {Type}: {file};
        Link: link;
        Veth: veth;
        Bridge: bridge;
        Masquerade: masquerade;
        MacGuard: mac_guard;
        Ipam: ipam;
        Leases: leases;
        ResolvConf: resolv_conf;
        Parent: parent;
        Macvlan: macvlan;
        Vlan: vlan;
        Ipvlan: ipvlan;
        Dummy: dummy;
        Tap: tap;
        Device: device;
        PortMappings: port_mappings;
        Firewall: firewall;
        NamespaceSysctl: namespace_sysctl;
        LinkSettings: link_settings;
        Delegate: delegate;
        SourceRoutes: source_routes;
        Vrf: vrf;
        Dhcp: dhcp;
        // end of the list
    }
    without keys {
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
}
