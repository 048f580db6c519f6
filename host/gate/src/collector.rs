//! GC by the host: the host carries out the operations that a guest would ask for, without the guest. A policy allows
//! this for its plugin (`gc = "host"`).
//!
//! Each operation passes the gate like a guest's operation, with the same policy, budget, audit line and errors.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new capability must have its own arm in each match")]

use crate::request::Request;
use postern_policy::Policy;
use postern_types::{Capability, Operation, ops};

/// The order of GC's operations: rules are removed before the addresses to which they lead are given back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Attachments,
    Leases,
    Delegate,
    Ipam,
}

/// Returns the operation of GC for a capability, and its turn. Capabilities without an operation of GC leave only
/// recorded effects, which [`Turn::Attachments`] removes.
fn asked(capability: Capability) -> Option<(Turn, Operation)> {
    match capability {
        Capability::Attachments => Some((Turn::Attachments, ops::Attachments::Collect.into())),
        Capability::Leases => Some((Turn::Leases, ops::Leases::Retain.into())),
        Capability::Delegate => Some((Turn::Delegate, ops::Delegate::Gc.into())),
        Capability::Ipam => Some((Turn::Ipam, ops::Ipam::Gc.into())),
        // each capability without collection: Capability::{Type} => None,
        Capability::Link => None,
        Capability::Veth => None,
        Capability::Addresses => None,
        Capability::Routes => None,
        Capability::LinkSysctl => None,
        Capability::Bridge => None,
        Capability::PointToPoint => None,
        Capability::Forwarding => None,
        Capability::Masquerade => None,
        Capability::MacGuard => None,
        Capability::ResolvConf => None,
        Capability::Loopback => None,
        Capability::Parent => None,
        Capability::Macvlan => None,
        Capability::Vlan => None,
        Capability::Ipvlan => None,
        Capability::Dummy => None,
        Capability::Tap => None,
        Capability::Device => None,
        Capability::PortMappings => None,
        Capability::Firewall => None,
        Capability::Bandwidth => None,
        Capability::NamespaceSysctl => None,
        Capability::LinkSettings => None,
        Capability::SourceRoutes => None,
        Capability::Vrf => None,
        Capability::Dhcp => None,
        Capability::Notes => None,
        // end of the list
    }
}

/// Returns the operations that a plugin needs for GC of this network. The operation of a withdrawn capability is
/// included: it is refused, and the log shows the refusal.
pub fn operations(policy: &Policy, request: &Request) -> Vec<Operation> {
    let has_delegate = !request.conf.ipam_type.is_empty();
    let known = Capability::ALL.iter().filter(|capability| policy.knows(**capability));
    let mut asked: Vec<_> = known.filter_map(|capability| asked(*capability)).collect();
    asked.retain(|(turn, _)| *turn != Turn::Ipam || has_delegate);
    asked.sort_by_key(|(turn, _)| *turn);
    asked.into_iter().map(|(_, operation)| operation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_cni::Verb;

    fn names(policy: &str, conf: &str) -> Vec<&'static str> {
        let policy = Policy::parse(policy, "x.toml").unwrap();
        let request = Request::of_test("x", Verb::Gc, conf);
        operations(&policy, &request).iter().map(Operation::name).collect()
    }

    #[test]
    fn every_operation_that_collects_is_asked_for() {
        for capability in Capability::ALL {
            let collects = |row: &&postern_types::Row| row.lasting == postern_types::Lasting::Collection;
            let rows: Vec<_> = capability.rows().iter().filter(collects).map(|row| row.name).collect();
            let asked: Vec<_> = asked(*capability).iter().map(|(_, operation)| operation.name()).collect();
            assert_eq!(asked, rows, "{capability}");
        }
    }

    #[test]
    fn what_a_plugin_needs_for_gc() {
        let ipam = r#"{"cniVersion":"1.1.0","name":"n","ipam":{"type":"host-local"}}"#;
        let plain = r#"{"cniVersion":"1.1.0","name":"n"}"#;
        let main = "[grant.ipam]\ntypes = [\"host-local\"]\n[grant.attachments]";
        let leases = "[grant.leases]\ndirectories = [\"/x\"]\nranges = [\"10.0.0.0/8\"]";
        let delegate = "[grant.delegate]\ntypes = [\"bridge\"]\nfiles = [\"/x/y\"]\ndirectories = [\"/x\"]";
        for (policy, conf, expected) in [
            (main, ipam, &["attachments.collect", "ipam.gc"][..]),
            (main, plain, &["attachments.collect"]),
            (leases, ipam, &["leases.retain"]),
            (delegate, plain, &["delegate.gc"]),
            ("", ipam, &[]),
            // The withdrawn operation is asked for too, and is refused.
            (&format!("withdraw = [\"ipam\"]\n{main}"), ipam, &["attachments.collect", "ipam.gc"]),
        ] {
            assert_eq!(names(policy, conf), expected, "{policy}");
        }
    }
}
