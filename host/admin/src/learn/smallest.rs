//! Makes the policy from the observations. The policy has the observed names, or the configuration's keys that had
//! these names as values.

use super::observed::{ObservedOperations, Used};
use crate::capability::{OWN_ADDRESSES, groups_of, page};
use crate::imports::Imports;
use crate::lists::Network;
use crate::output::one_line;
use anyhow::{Result, bail};
use postern_cni::{Version, parse_cidr};
use postern_types::Capability;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A key of a policy table, and the usual source of its values.
pub struct Key {
    key: &'static str,
    shape: Shape,
    from: Source,
    widest: WidestValue,
}

/// The shape of a key's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// One text.
    One,
    /// A list that every table needs.
    List,
    /// A list that can be left out.
    Some,
}

/// The usual source of values.
pub enum Source {
    /// One key of the configuration, and its default.
    Value(&'static str, Option<&'static str>),
    /// Structures of the configuration. Each has a path, and a value that covers the structure's content.
    Parts(&'static [(&'static str, &'static str)]),
}

/// The value of a key in the widest policy.
pub enum WidestValue {
    /// Values that cover everything.
    Values(&'static [&'static str]),
    /// The values in the configuration: the policy language has no value that covers everything.
    Configured,
    /// No value: the key limits only if it is present.
    LeftOut,
}

impl Key {
    /// Makes a key that has one text.
    pub const fn one(key: &'static str, from: Source, widest: WidestValue) -> Self {
        Self { key, shape: Shape::One, from, widest }
    }

    /// Makes a key that has a list, which every table needs.
    pub const fn list(key: &'static str, from: Source, widest: WidestValue) -> Self {
        Self { key, shape: Shape::List, from, widest }
    }

    /// Makes a key that has a list and can be left out.
    pub const fn some(key: &'static str, from: Source, widest: WidestValue) -> Self {
        Self { key, shape: Shape::Some, from, widest }
    }

    /// Returns the values that stand for the configuration's own values.
    fn configured(&self) -> Vec<String> {
        match &self.from {
            Source::Value(path, default) => vec![placeholder(path, *default)],
            Source::Parts(parts) => parts.iter().map(|(_, value)| (*value).to_owned()).collect(),
        }
    }

    /// Returns the value as TOML. TOML's basic strings accept JSON's escapes.
    fn written(&self, values: &[String]) -> Result<String> {
        written(self.shape != Shape::One, values)
    }
}

/// The usual sources of the addresses that an IPAM plugin gives without leasing them.
const ADDRESSES: &[(&str, &str)] = &[
    ("/ipam/addresses", "${config.ipam.addresses.*.address}"),
    ("/args/cni/ips", "${config.args.cni.ips.*}"),
    ("/runtimeConfig/ips", "${config.runtimeConfig.ips.*}"),
];
const GATEWAYS: &[(&str, &str)] =
    &[("/ipam/addresses", "${config.ipam.addresses.*.address} via ${config.ipam.addresses.*.gateway}")];

/// Returns the policy, with comments about each network's needs.
///
/// # Errors
/// An observed name can't be written as a literal.
pub fn policy(seen: &ObservedOperations, networks: &[Network], results: &[Value], operations: usize) -> Result<String> {
    let mut out = String::new();
    let most = operations.saturating_mul(4);
    writeln!(out, "# One call used at most {operations} operations. A limit of four times this number leaves room:")?;
    writeln!(out, "# [limits]\n# operations = {most}")?;
    for capability in Capability::ALL {
        let Some(used) = seen.0.get(capability.name()) else { continue };
        let functions: Vec<&str> = used.functions.iter().map(String::as_str).collect();
        writeln!(out, "\n# Used: {}. Needed by {}.", functions.join(", "), labels(&used.networks, networks))?;
        writeln!(out, "[grant.{capability}]")?;
        for key in page(*capability).keys {
            if let Some(values) = values(*capability, key, used, networks)? {
                writeln!(out, "{} = {values}", key.key)?;
            }
        }
    }
    if !seen.0.contains_key(Capability::Leases.name()) {
        out.push_str(&handed_out(networks, results)?);
    }
    out.push_str(&taken_over(seen, networks)?);
    Ok(out)
}

/// Returns the line with the CNI versions of the networks, for a component that names no versions itself.
pub fn versions(networks: &[Network]) -> String {
    let version = |network: &Network| match network.text("/cniVersion") {
        "" => "0.1.0".to_owned(),
        version => version.to_owned(),
    };
    let versions: BTreeSet<String> =
        networks.iter().map(version).filter(|version| Version::parse(version).is_some()).collect();
    if versions.is_empty() {
        return String::new();
    }
    let versions: Vec<String> = versions.iter().map(|version| format!("\"{version}\"")).collect();
    format!("# The component does not answer VERSION.\nversions = [{}]\n", versions.join(", "))
}

/// Returns the widest policy for plugins with these imports. Each value covers everything if the language has such a
/// value. Otherwise (a VLAN, a directory) the key gets the configuration's value.
///
/// # Errors
/// No error occurs in practice, because the values are texts.
pub fn widest(imports: &Imports) -> Result<String> {
    let mut out = String::new();
    for capability in imports.authority.keys() {
        writeln!(out, "[grant.{capability}]")?;
        let known = Capability::parse(capability);
        for key in known.into_iter().flat_map(|capability| page(capability).keys) {
            let values = match key.widest {
                WidestValue::LeftOut => continue,
                WidestValue::Values(open) => open.iter().map(|value| (*value).to_owned()).collect(),
                WidestValue::Configured => key.configured(),
            };
            writeln!(out, "{} = {}", key.key, key.written(&values)?)?;
        }
    }
    out.push_str("[result]\naddresses = [\"0.0.0.0/0\", \"::/0\"]\n");
    out.push_str("gateways = [\"0.0.0.0/0 via 0.0.0.0/0\", \"::/0 via ::/0\"]\n");
    out.push_str("[previous]\naddresses = [\"0.0.0.0/0\", \"::/0\"]\nnames = [\"*\"]\n");
    Ok(out)
}

/// Returns the imports that no network needed: whole capabilities, and single functions of used capabilities.
pub fn unused(imports: &Imports, seen: &ObservedOperations) -> BTreeMap<String, Vec<String>> {
    let mut unused = BTreeMap::new();
    for (capability, functions) in &imports.authority {
        let used = seen.0.get(capability);
        let acts = |function: &&String| groups_of(capability).any(|group| group.functions.contains(&function.as_str()));
        // The log does not name functions that read a handle's attributes.
        let reads = |function: &&String| function.ends_with(".attributes") || function.ends_with(".promisc");
        let names: Vec<String> = functions
            .iter()
            .filter(acts)
            .filter(|function| used.is_none() || !reads(function))
            .map(|function| function.rsplit('.').next().unwrap_or(function).to_owned())
            .filter(|name| used.is_none_or(|used| !used.functions.contains(name)))
            .collect();
        if !names.is_empty() {
            unused.insert(capability.clone(), names);
        }
    }
    unused
}

fn labels(numbers: &BTreeSet<usize>, networks: &[Network]) -> String {
    if numbers.len() == networks.len() && networks.len() > 1 {
        return "every network".to_owned();
    }
    let label = |number: &usize| networks.get(*number).map(|network| one_line(&network.label));
    numbers.iter().filter_map(label).collect::<Vec<_>>().join(", ")
}

/// Returns the value of a key as TOML; `None` if no observed object needs it.
fn values(capability: Capability, key: &Key, used: &Used, networks: &[Network]) -> Result<Option<String>> {
    let Some(objects) = used.objects.get(key.key) else {
        // A table needs its lists, even for a plugin that only removes objects.
        if key.shape != Shape::List {
            return Ok(None);
        }
        let there = match &key.from {
            Source::Value(..) => Vec::new(),
            Source::Parts(parts) => present(parts, networks.iter()),
        };
        return key.written(&if there.is_empty() { key.configured() } else { there }).map(Some);
    };
    let literal: BTreeSet<&String> = objects.values().flatten().collect();
    let chosen = match &key.from {
        Source::Value(path, default) => {
            let same = |(number, seen): (&usize, &BTreeSet<String>)| {
                let value = networks.get(*number).and_then(|network| at(network, path)).or(default.map(str::to_owned));
                seen.iter().all(|object| Some(object) == value.as_ref())
            };
            // One text can't have two values. The key's usual source is the best guess: `learn` tests the policy.
            let two = key.shape == Shape::One && literal.len() > 1;
            if two || objects.iter().all(same) { vec![placeholder(path, *default)] } else { Vec::new() }
        }
        Source::Parts(parts) => present(parts, objects.keys().filter_map(|number| networks.get(*number))),
    };
    if !chosen.is_empty() {
        return key.written(&chosen).map(Some);
    }
    if let Some(open) = literal.iter().find(|object| object.contains(['*', '$'])) {
        bail!("\"{open}\" was used for {}.{}, and a policy can't name that literally", capability, key.key);
    }
    key.written(&literal.into_iter().cloned().collect::<Vec<_>>()).map(Some)
}

/// Returns `[result]` for a plugin whose result has addresses but no interface: an IPAM plugin that leases nothing.
fn handed_out(networks: &[Network], results: &[Value]) -> Result<String> {
    let mut literal: [BTreeSet<String>; 2] = Default::default();
    let [addresses, gateways] = &mut literal;
    for result in results.iter().filter(|result| result.get("interfaces").is_none()) {
        for ip in result.get("ips").and_then(Value::as_array).into_iter().flatten() {
            let Some(address) = ip.get("address").and_then(Value::as_str) else { continue };
            addresses.insert(address.to_owned());
            gateways
                .extend(ip.get("gateway").and_then(Value::as_str).map(|gateway| format!("{address} via {gateway}")));
        }
    }
    let mut out = String::new();
    if addresses.is_empty() {
        return Ok(out);
    }
    writeln!(out, "\n# The addresses and gateways that the plugin may give.\n[result]")?;
    for (name, parts, literal) in [("addresses", ADDRESSES, &*addresses), ("gateways", GATEWAYS, &*gateways)] {
        if literal.is_empty() {
            continue;
        }
        let mut values = present(parts, networks.iter());
        if values.is_empty() {
            values = literal.iter().cloned().collect();
        }
        writeln!(out, "{name} = {}", written(true, &values)?)?;
    }
    Ok(out)
}

/// Returns `[previous]` for a plugin that called no IPAM plugin, and used addresses that an earlier plugin gave the
/// attachment. The table has subnets, because each container has other addresses.
fn taken_over(seen: &ObservedOperations, networks: &[Network]) -> Result<String> {
    let asked = seen.0.get(Capability::Ipam.name()).map(|used| &used.networks);
    // The capability `firewall` has another text for using addresses.
    let uses = |of: &&Capability| **of == Capability::Firewall || page(**of).always == Some(OWN_ADDRESSES);
    let numbers = Capability::ALL.iter().filter(uses).filter_map(|capability| seen.0.get(capability.name()));
    let numbers: BTreeSet<usize> = numbers.flat_map(|used| used.networks.iter().copied()).collect();
    let numbers = numbers.into_iter().filter(|number| asked.is_none_or(|asked| !asked.contains(number)));
    let makes_links = |capability: &Capability| capability.makes_links() && seen.0.contains_key(capability.name());
    let makes_links = Capability::ALL.iter().any(makes_links);
    let (mut addresses, mut in_container) = (BTreeSet::new(), false);
    for (network, ip) in numbers.filter_map(|number| networks.get(number)).flat_map(ips_before) {
        if !makes_links && is_in_container(network, ip) {
            in_container = true;
            continue;
        }
        let address = ip.get("address").and_then(Value::as_str).and_then(|text| parse_cidr(text).ok());
        addresses.extend(address.map(|address| address.trunc().to_string()));
    }
    let attached = seen.0.get(Capability::Bridge.name()).and_then(|used| used.objects.get("attach"));
    let names: BTreeSet<String> = attached.iter().flat_map(|objects| objects.values()).flatten().cloned().collect();
    let mut keys = String::new();
    for (key, values) in [("addresses", addresses), ("names", names)] {
        if !values.is_empty() {
            writeln!(keys, "{key} = {}", written(true, &values.into_iter().collect::<Vec<_>>())?)?;
        }
    }
    if in_container {
        keys.push_str("in-container = \"true\"\n");
    }
    if keys.is_empty() {
        return Ok(String::new());
    }
    Ok(format!(
        "\n# Objects of an earlier native plugin. The record lists the objects of Postern's \
        plugins.\n[previous]\n{keys}"
    ))
}

/// Returns the addresses of a network's `prevResult`.
fn ips_before(network: &Network) -> impl Iterator<Item = (&Network, &Value)> {
    let ips = network.config.pointer("/prevResult/ips").and_then(Value::as_array);
    ips.into_iter().flatten().map(move |ip| (network, ip))
}

/// True if an address of `prevResult` is on a link of the container: the kernel can confirm it.
fn is_in_container(network: &Network, ip: &Value) -> bool {
    let number = ip.get("interface").and_then(Value::as_u64);
    let link = number.and_then(|number| network.config.pointer(&format!("/prevResult/interfaces/{number}")));
    let sandbox = link.and_then(|link| link.get("sandbox")).and_then(Value::as_str);
    sandbox.is_some_and(|sandbox| !sandbox.is_empty())
}

/// Returns the values of the structures that at least one network has.
fn present<'a>(parts: &[(&str, &str)], networks: impl Iterator<Item = &'a Network> + Clone) -> Vec<String> {
    let there =
        |at: &str| networks.clone().any(|network| network.config.pointer(at).is_some_and(|part| !part.is_null()));
    parts.iter().filter(|(at, _)| there(at)).map(|(_, value)| (*value).to_owned()).collect()
}

fn placeholder(path: &str, default: Option<&str>) -> String {
    match default {
        // No key of the configuration has the value.
        Some(default) if path.is_empty() => default.to_owned(),
        Some(default) => format!("${{config.{path} | {default}}}"),
        None => format!("${{config.{path}}}"),
    }
}

/// Returns a scalar of the configuration, as a policy reads it.
fn at(network: &Network, path: &str) -> Option<String> {
    match network.config.pointer(&format!("/{}", path.replace('.', "/")))? {
        Value::String(text) => Some(text.clone()),
        value @ (Value::Number(_) | Value::Bool(_)) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Returns the value as TOML. TOML's basic strings accept JSON's escapes.
fn written(list: bool, values: &[String]) -> Result<String> {
    let quoted: Vec<String> = values.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    Ok(match quoted.as_slice() {
        [only] if !list => only.clone(),
        _ => format!("[{}]", quoted.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::groups;
    use postern_policy::Policy;
    use serde_json::json;

    fn network(label: &str, config: Value) -> Network {
        Network { label: label.to_owned(), config }
    }

    fn used(key: &'static str, objects: &[(usize, &[&str])]) -> ObservedOperations {
        let set = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        let objects: BTreeMap<usize, BTreeSet<String>> =
            objects.iter().map(|(number, values)| (*number, set(values))).collect();
        let used = Used {
            functions: set(&["ensure"]),
            networks: objects.keys().copied().collect(),
            objects: BTreeMap::from([(key, objects)]),
        };
        ObservedOperations(BTreeMap::from([("bridge".to_owned(), used)]))
    }

    #[test]
    fn a_name_that_follows_the_configuration_becomes_its_key() {
        let networks = [network("a", json!({"bridge": "br1"})), network("b", json!({}))];
        let text = policy(&used("names", &[(0, &["br1"]), (1, &["cni0"])]), &networks, &[], 3).unwrap();
        assert!(text.contains("names = [\"${config.bridge | cni0}\"]"), "{text}");
        assert!(text.contains("Needed by every network") && text.contains("# operations = 12"), "{text}");
        let text = policy(&used("names", &[(0, &["br1"]), (1, &["br2"])]), &networks, &[], 3).unwrap();
        assert!(text.contains("names = [\"br1\", \"br2\"]"), "{text}");
        let text = policy(&used("mtu", &[(0, &["9000"])]), &networks, &[], 3).unwrap();
        assert!(text.contains("mtu = \"9000\"") && text.contains("Needed by a."), "{text}");
        assert!(policy(&used("names", &[(0, &["br*"])]), &networks, &[], 3).is_err());
    }

    #[test]
    fn what_only_removes_has_a_table_that_can_be_read() {
        let networks = [network("a", json!({}))];
        let mut seen = ObservedOperations::default();
        for capability in Capability::ALL.iter().map(|capability| capability.name()) {
            seen.0.entry(capability.to_owned()).or_default().networks.insert(0);
        }
        let text = policy(&seen, &networks, &[], 0).unwrap();
        Policy::parse(&text, "test.toml").unwrap();
        assert!(text.contains("backends = [\"${config.ipMasqBackend | any}\"]"), "{text}");
        assert!(text.contains("ports = [\"1-65535\"]"), "{text}");
        assert!(!text.contains("\nvlan") && !text.contains("\ntrunk"), "{text}");
    }

    #[test]
    fn the_widest_policy_can_be_read() {
        let list: Vec<String> = groups()
            .map(|(capability, group)| format!("postern:cni/{capability}@0.1.0#{}", group.functions[0]))
            .collect();
        let text = widest(&Imports::parse(&list)).unwrap();
        assert_eq!(Policy::parse(&text, "test.toml").unwrap().capabilities().len(), Capability::ALL.len());
        assert!(!text.contains("native"), "{text}");
    }

    #[test]
    fn addresses_that_were_not_leased_are_granted_as_results() {
        let networks = [network("a", json!({"ipam": {"addresses": [{"address": "10.0.0.5/24"}]}}))];
        let result = json!({"ips": [{"address": "10.0.0.5/24"}]});
        let text = policy(&ObservedOperations::default(), &networks, &[result], 0).unwrap();
        assert!(text.contains("[result]\naddresses = [\"${config.ipam.addresses.*.address}\"]"), "{text}");
        assert!(!text.contains("gateways ="), "{text}");
        let made = json!({"interfaces": [], "ips": [{"address": "10.0.0.5/24"}]});
        assert!(!policy(&ObservedOperations::default(), &networks, &[made], 0).unwrap().contains("[result]"));
    }

    #[test]
    fn addresses_of_a_plugin_before_are_granted_by_their_networks() {
        let previous = json!({"prevResult": {"ips": [{"address": "10.9.0.2/24"}, {"address": "fd00::2/64"}]}});
        let networks = [network("a", previous), network("b", json!({}))];
        let seen = |names: &[&str]| {
            let used = Used { networks: BTreeSet::from([0, 1]), ..Used::default() };
            ObservedOperations(names.iter().map(|name| ((*name).to_owned(), used.clone())).collect())
        };
        let text = policy(&seen(&["masquerade"]), &networks, &[], 0).unwrap();
        assert!(text.ends_with("[previous]\naddresses = [\"10.9.0.0/24\", \"fd00::/64\"]\n"), "{text}");
        Policy::parse(&text, "test.toml").unwrap();
        let interfaces = [json!({"name": "br0"}), json!({"name": "eth0", "sandbox": "/run/netns/c"})];
        for (interface, expected) in [(1, "in-container = \"true\"\n"), (0, "addresses = [\"10.9.0.0/24\"]\n")] {
            let ips = json!([{"address": "10.9.0.2/24", "interface": interface}]);
            let networks = [network("a", json!({"prevResult": {"interfaces": interfaces, "ips": ips}}))];
            let used = Used { networks: BTreeSet::from([0]), ..Used::default() };
            let seen = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), used.clone())).collect();
            let text = policy(&ObservedOperations(seen(&["masquerade"])), &networks, &[], 0).unwrap();
            assert!(text.ends_with(&format!("[previous]\n{expected}")), "{text}");
            Policy::parse(&text, "test.toml").unwrap();
            // A plugin that makes the container's link has no earlier link in the container.
            let text = policy(&ObservedOperations(seen(&["masquerade", "veth"])), &networks, &[], 0).unwrap();
            assert!(text.contains("addresses = [\"10.9.0.0/24\"]"), "{text}");
        }
        for others in [&["link"][..], &["masquerade", "ipam"]] {
            assert!(!policy(&seen(others), &networks, &[], 0).unwrap().contains("previous"), "{others:?}");
        }
    }

    #[test]
    fn links_of_a_plugin_before_are_granted_by_their_names() {
        let networks = [network("a", json!({"prevResult": {"interfaces": [{"name": "tap0"}]}}))];
        let text = policy(&used("attach", &[(0, &["tap0"])]), &networks, &[], 0).unwrap();
        assert!(text.contains("attach = [\"tap0\"]"), "{text}");
        assert!(text.ends_with("[previous]\nnames = [\"tap0\"]\n"), "{text}");
        Policy::parse(&text, "test.toml").unwrap();
    }

    #[test]
    fn says_what_was_imported_for_nothing() {
        let list: Vec<String> = [
            "bridge@0.1.0#ensure",
            "bridge@0.1.0#find",
            "bridge@0.1.0#[method]bridge.attributes",
            "forwarding@0.1.0#enable",
        ]
        .iter()
        .map(|name| format!("postern:cni/{name}"))
        .collect();
        let unused = unused(&Imports::parse(&list), &used("names", &[]));
        assert_eq!(unused["bridge"], ["find"]);
        assert_eq!(unused["forwarding"], ["enable"]);
    }
}
