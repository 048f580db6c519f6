//! GC by the host: the operations that a guest would ask for, without the guest. A policy says for which plugins that is
//! all (`gc = "host"`).
//!
//! Each operation passes the gate as a guest's would: policy, budget, audit line and errors are the same.

use crate::call::call;
use crate::gate::Gate;
use crate::session::Request;
use postern_cni::Error;
use postern_policy::Policy;
use postern_types::{Capability, Operation, ops};

/// The operations of GC by the capability that they belong to, in their order. The delegate comes last: rules go before
/// addresses.
fn all() -> [(Capability, Operation); 4] {
    [
        (Capability::Attachments, ops::Attachments::Collect.into()),
        (Capability::Leases, ops::Leases::Retain.into()),
        (Capability::Delegate, ops::Delegate::Gc.into()),
        (Capability::Ipam, ops::Ipam::Gc.into()),
    ]
}

/// Returns the operations that a plugin needs for GC of this network. A capability that policy takes away counts as
/// well: the refusal is then the answer, and the log has it.
pub fn operations(policy: &Policy, request: &Request) -> Vec<Operation> {
    let is_needed = |capability| match capability {
        Capability::Ipam => policy.knows(capability) && !request.conf.ipam_type.is_empty(),
        other => policy.knows(other),
    };
    all().into_iter().filter(|(capability, _)| is_needed(*capability)).map(|(_, operation)| operation).collect()
}

/// Carries them out. All are tried.
///
/// # Errors
/// The first failure.
pub fn collect(gate: &mut Gate<'_>, operations: &[Operation]) -> Result<(), Error> {
    let mut failed = None;
    for operation in operations {
        if let Err(error) = call(gate, operation) {
            failed.get_or_insert(error);
        }
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_cni::{NetConf, Verb, Version};

    fn names(policy: &str, conf: &str) -> Vec<&'static str> {
        let policy = Policy::parse(policy, "x.toml").unwrap();
        let request = Request {
            plugin: "x".to_owned(),
            verb: Verb::Gc,
            container_id: String::new(),
            netns: String::new(),
            ifname: String::new(),
            path: String::new(),
            env: Vec::new(),
            stdin: std::sync::Arc::default(),
            conf: NetConf::parse(postern_cni::Json::parse(conf.as_bytes(), 4096).unwrap()).unwrap(),
            version: Version::LATEST,
        };
        operations(&policy, &request).iter().map(Operation::name).collect()
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
            // The refusal is the answer.
            (&format!("withdraw = [\"ipam\"]\n{main}"), ipam, &["attachments.collect", "ipam.gc"]),
        ] {
            assert_eq!(names(policy, conf), expected, "{policy}");
        }
    }
}
