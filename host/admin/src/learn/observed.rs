//! The operations of a plugin, read from the gate's own log.

use super::runs::Run;
use crate::capability::{OperationTexts, operation_texts};
use crate::lists::Network;
use postern_types::Operation;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// One capability that was used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Functions, as WIT spells them.
    pub functions: BTreeSet<String>,
    /// The networks that needed it, by their position in the list.
    pub networks: BTreeSet<usize>,
    /// Objects by policy key and network.
    pub objects: BTreeMap<&'static str, BTreeMap<usize, BTreeSet<String>>>,
}

/// Everything that was allowed, by capability. Denied operations are in [`Run::denied`].
#[derive(Clone, Debug, Default)]
pub struct ObservedOperations(pub BTreeMap<String, Used>);

impl ObservedOperations {
    /// Reads the runs, one for each network.
    pub fn of(runs: &[Run], networks: &[Network]) -> Self {
        let mut seen = Self::default();
        for (number, (run, network)) in runs.iter().zip(networks).enumerate() {
            for line in &run.lines {
                let text = |key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default();
                let Some((capability, function)) = text("operation").split_once('.') else { continue };
                if text("decision") != "allow" {
                    continue;
                }
                let used = seen.0.entry(capability.to_owned()).or_default();
                used.networks.insert(number);
                // A request too long for the log has no objects there: the policy takes them from the configuration.
                let request = line.get("request").and_then(|request| Operation::deserialize(request).ok());
                let operation_texts = request.as_ref().map(operation_texts);
                used.functions
                    .insert(operation_texts.and_then(OperationTexts::function).unwrap_or_else(|| function.to_owned()));
                for (key, object) in
                    operation_texts.map(|operation_texts| operation_texts.objects(network)).unwrap_or_default()
                {
                    used.objects.entry(key).or_default().entry(number).or_default().insert(object);
                }
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_policy::capability::leases::DEFAULT_DIRECTORY;
    use postern_types::{LeaseRange, LinkSysctl, PortSpec, ops};
    use serde_json::json;

    #[test]
    fn reads_the_log() {
        let line = |decision: &str, operation: Operation| json!({"operation": operation.name(), "decision": decision, "request": operation});
        let ensure =
            |promisc| ops::Bridge::Ensure { name: "br1".to_owned(), mtu: None, vlan_filtering: false, promisc };
        let port = PortSpec { vlan: Some(5), trunk: vec![7, 8], ..PortSpec::default() };
        let range = LeaseRange { subnet: "10.0.0.0/8".parse().unwrap(), start: None, end: None, gateway: None };
        let set = ops::LinkSysctl::Set { link: 0, key: LinkSysctl::AcceptDad, value: true };
        let run = Run {
            lines: vec![
                line("allow", ensure(true).into()),
                line("allow", ops::Bridge::Attach { bridge: 0, host: 1, port }.into()),
                line("allow", set.into()),
                line("allow", ops::Leases::Reserve { sets: vec![vec![range]], requested: Vec::new() }.into()),
                line("deny", ops::Forwarding::Enable.into()),
                json!({"operation": "routes.add", "decision": "allow", "cut": "{"}),
            ],
            ..Run::default()
        };
        let network = Network { label: "x".to_owned(), config: json!({}) };
        let seen = ObservedOperations::of(&[run], &[network]);
        let of = |capability: &str, key: &str| {
            let objects = seen.0.get(capability).and_then(|used| used.objects.get(key)).and_then(|all| all.get(&0));
            objects.into_iter().flatten().cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("bridge", "names"), "br1");
        assert_eq!((of("bridge", "mtu"), of("bridge", "gateways")), (String::new(), String::new()));
        assert_eq!(of("bridge", "promisc"), "true");
        assert_eq!(
            (of("bridge", "vlan"), of("bridge", "trunk"), of("bridge", "isolated")),
            ("5".into(), "7 8".into(), String::new())
        );
        assert_eq!(
            (of("leases", "directories"), of("leases", "ranges")),
            (DEFAULT_DIRECTORY.to_owned(), "10.0.0.0/8".into())
        );
        assert!(seen.0["link-sysctl"].functions.contains("set-accept-dad"));
        assert!(seen.0["routes"].functions.contains("add"));
        assert!(!seen.0.contains_key("forwarding"));
    }
}
