//! The operations of a plugin, read from the gate's own log.

use super::runs::Run;
use crate::capability::page;
use crate::lists::Network;
use postern_types::Capability;
use serde::de::DeserializeOwned;
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

/// An operation that policy allowed, from the audit log.
pub struct LoggedOperation<'a> {
    /// The function of the WIT interface.
    pub function: &'a str,
    /// The operation's own name in the log, with its fields.
    request: &'a Value,
    /// The network of the run.
    pub network: &'a Network,
}

impl LoggedOperation<'_> {
    /// Returns the value at this place of the request.
    pub fn value<T: DeserializeOwned>(&self, place: &str) -> Option<T> {
        T::deserialize(self.request.pointer(place)?).ok()
    }

    /// Returns the values at these places of the request, as objects of policy keys. A setting that is off is no object.
    pub fn values(&self, places: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        let of = |(key, place): &(&'static str, &str)| {
            let texts = self.request.pointer(place).map(texts).unwrap_or_default();
            texts.into_iter().map(|text| (*key, text)).collect::<Vec<_>>()
        };
        places.iter().flat_map(of).collect()
    }
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Null | Value::Bool(false) => Vec::new(),
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::String(text) => vec![text.clone()],
        Value::Bool(true) | Value::Number(_) | Value::Object(_) => vec![value.to_string()],
    }
}

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
                // A request that is too long for the log has no objects in it. The policy takes them from the
                // configuration.
                let operation = line.get("request").map(|request| LoggedOperation { function, request, network });
                // The log has a single name for all functions that set a key.
                let sets_key = operation.as_ref().filter(|_| capability == Capability::LinkSysctl.name());
                let function = match sets_key.and_then(|operation| operation.value::<String>("/key")) {
                    Some(key) => format!("set-{}", key.replace('_', "-")),
                    None => function.to_owned(),
                };
                used.functions.insert(function);
                let known = operation.zip(Capability::parse(capability));
                let objects = known.map(|(operation, capability)| (page(capability).objects)(&operation));
                for (key, object) in objects.unwrap_or_default() {
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
    use postern_types::{
        Backend, DeviceKey, IngressPolicy, IpvlanMode, LeaseRange, LinkSettings, LinkSysctl, NatSources, Operation,
        PortSpec, TapSettings, ops,
    };
    use serde_json::json;

    #[test]
    fn reads_the_log() {
        let line = |decision: &str, operation: Operation| json!({"operation": operation.name(), "decision": decision, "request": operation.logged()});
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

    #[test]
    fn finds_the_objects_of_each_request() {
        let network = Network { label: "x".to_owned(), config: json!({"ipam": {"type": "static"}}) };
        let objects = |operation: Operation| {
            let (_, function) = operation.name().split_once('.').unwrap();
            let request = serde_json::to_value(operation.logged()).unwrap();
            let logged = LoggedOperation { function, request: &request, network: &network };
            let objects = (page(operation.capability()).objects)(&logged).into_iter();
            objects.map(|(key, object)| format!("{key}={object}")).collect::<Vec<_>>().join(" ")
        };
        let settings = TapSettings { mtu: Some(9000), owner: Some(0), multi_queue: true, ..TapSettings::default() };
        assert_eq!(objects(ops::Tap::Create { settings }.into()), "owners=0 multi-queue=true mtu=9000");
        assert_eq!(objects(ops::Tap::Join { link: 0, bridge: "br0".to_owned() }.into()), "bridges=br0");
        let settings = LinkSettings { tx_queue_length: Some(7), promisc: Some(true), ..LinkSettings::default() };
        let change = objects(ops::LinkSettings::Change { link: 0, settings: settings.clone() }.into());
        assert!(change.starts_with("promisc=true tx-queue-length=7 directories="), "{change}");
        assert_eq!(objects(ops::LinkSettings::Check { link: 0, settings }.into()), "");
        let take = ops::Device::Take { by: DeviceKey::Path, value: "/sys/devices/x".to_owned() };
        assert_eq!(objects(take.into()), "paths=/sys/devices/x");
        let parent = |name: &str, in_container| ops::Parent::Find { name: name.to_owned(), in_container }.into();
        assert_eq!(objects(parent("", false)), "names=node.default-link");
        assert_eq!(objects(parent("eth0", true)), "in-container=true names=eth0");
        assert_eq!(objects(ops::Masquerade::Ensure { backend: None }.into()), "backends=any");
        assert_eq!(objects(ops::Masquerade::Check { backend: Some(Backend::Nftables) }.into()), "backends=nftables");
        assert_eq!(objects(ops::Masquerade::Remove.into()), "");
        let forwards = vec!["tcp:8080-8089:80".parse().unwrap(), "udp:53:53".parse().unwrap()];
        let ensure = ops::PortMappings::Ensure { addresses: Vec::new(), forwards, masquerade: NatSources::None };
        assert_eq!(objects(ensure.into()), "ports=8080-8089 ports=53");
        let set = ops::NamespaceSysctl::Set { key: "net/core/somaxconn".to_owned(), value: "1".to_owned() };
        assert_eq!(objects(set.into()), "keys=net.core.somaxconn");
        assert_eq!(
            objects(ops::Vrf::Join { link: 0, name: "red".to_owned(), table: Some(9) }.into()),
            "names=red tables=9"
        );
        let apply = ops::SourceRoutes::Apply { link: 0, sources: Vec::new(), table: Some(9), hints: false };
        assert_eq!(objects(apply.into()), "tables=9");
        assert_eq!(objects(ops::Vlan::Create { parent: 0, id: 5, mtu: None }.into()), "ids=5");
        let ipvlan = ops::Ipvlan::Create { parent: 0, mode: IpvlanMode::L3s, mtu: Some(1400) };
        assert_eq!(objects(ipvlan.into()), "modes=l3s mtu=1400");
        let isolate = ops::Firewall::Isolate { ingress: IngressPolicy::SameBridge };
        assert_eq!(objects(isolate.into()), "ingress=same-bridge");
        assert_eq!(objects(ops::Ipam::Add.into()), "types=static");
    }
}
