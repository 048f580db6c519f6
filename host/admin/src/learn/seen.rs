//! What a plugin was seen to do, from the gate's own log.

use super::runs::Run;
use crate::lists::Network;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Where native host-local keeps its networks unless it is told otherwise.
const DEFAULT_DIRECTORY: &str = "/var/lib/cni/networks";

/// One capability that was used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Functions, as WIT spells them.
    pub functions: BTreeSet<String>,
    /// Which networks needed it, by their place in the list.
    pub networks: BTreeSet<usize>,
    /// Objects by policy key and network.
    pub objects: BTreeMap<&'static str, BTreeMap<usize, BTreeSet<String>>>,
}

/// Everything that was allowed, by capability. What was refused is in [`Run::denied`].
#[derive(Clone, Debug, Default)]
pub struct Seen(pub BTreeMap<String, Used>);

impl Seen {
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
                let request = line.get("request").unwrap_or(&Value::Null);
                let used = seen.0.entry(capability.to_owned()).or_default();
                used.networks.insert(number);
                used.functions.insert(match request.get("key").and_then(Value::as_str) {
                    Some(key) if capability == "link-sysctl" => format!("set-{}", key.replace('_', "-")),
                    _ => function.to_owned(),
                });
                for (key, object) in objects(text("operation"), request, network) {
                    used.objects.entry(key).or_default().entry(number).or_default().insert(object);
                }
            }
        }
        seen
    }
}

/// The objects of one operation, by the policy keys that decide on them. A setting that is off is no object.
fn objects(operation: &str, request: &Value, network: &Network) -> Vec<(&'static str, String)> {
    let mut objects = Vec::new();
    let text = |at: &str| request.pointer(at).and_then(Value::as_str).map(str::to_owned);
    let number = |at: &str| request.pointer(at).and_then(Value::as_u64).map(|number| number.to_string());
    let on = |at: &str| request.pointer(at).and_then(Value::as_bool).filter(|on| *on).map(|on| on.to_string());
    let of_network = |at: &str| Some(network.text(at).to_owned()).filter(|text| !text.is_empty());
    let mut add = |key, object: Option<String>| objects.extend(object.map(|object| (key, object)));
    match operation {
        "bridge.ensure" | "bridge.find" => {
            add("names", text("/name"));
            add("mtu", number("/mtu"));
            add("promisc", on("/promisc"));
        }
        "veth.create" => add("mtu", number("/mtu")),
        "bridge.attach" | "bridge.ensure-gateways" => {
            add("gateways", (operation == "bridge.ensure-gateways").then(|| "true".to_owned()));
            add("vlan", number("/port/vlan"));
            for id in request.pointer("/port/trunk").and_then(Value::as_array).into_iter().flatten() {
                add("trunk", id.as_u64().map(|id| id.to_string()));
            }
            add("preserve-default-vlan", on("/port/preserve_default_vlan"));
            add("isolated", on("/port/isolated"));
            add("force-address", on("/force"));
        }
        "masquerade.ensure" | "masquerade.check" => {
            add("backends", Some(text("/backend").unwrap_or_else(|| "nftables".to_owned())));
        }
        "ipam.add" | "ipam.del" | "ipam.check" | "ipam.status" | "ipam.gc" => add("types", of_network("/ipam/type")),
        "resolv-conf.read" => add("files", of_network("/ipam/resolvConf")),
        _ if operation.starts_with("leases.") => {
            add("directories", of_network("/ipam/dataDir").or_else(|| Some(DEFAULT_DIRECTORY.to_owned())));
            let sets = request.pointer("/sets").and_then(Value::as_array).into_iter().flatten();
            for range in sets.filter_map(Value::as_array).flatten() {
                add("ranges", range.get("subnet").and_then(Value::as_str).map(str::to_owned));
            }
        }
        _ => {}
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_the_log() {
        let line = |operation: &str, decision: &str, request: Value| json!({"operation": operation, "decision": decision, "request": request});
        let run = Run {
            lines: vec![
                line(
                    "bridge.ensure",
                    "allow",
                    json!({"op": "bridge-ensure", "name": "br1", "mtu": null, "promisc": true}),
                ),
                line("bridge.attach", "allow", json!({"port": {"vlan": 5, "trunk": [7, 8], "isolated": false}})),
                line("link-sysctl.set", "allow", json!({"key": "accept_dad"})),
                line("leases.reserve", "allow", json!({"sets": [[{"subnet": "10.0.0.0/8"}]]})),
                line("forwarding.enable", "deny", Value::Null),
            ],
            ..Run::default()
        };
        let network = Network { label: "x".to_owned(), config: json!({}) };
        let seen = Seen::of(&[run], &[network]);
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
        assert!(!seen.0.contains_key("forwarding"));
    }
}
