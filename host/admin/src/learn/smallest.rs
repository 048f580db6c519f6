//! From what was seen to a policy: literal names, or the keys of the configuration that they turned out to come from.

use super::seen::{Seen, Used};
use crate::imports::Imports;
use crate::lists::Network;
use crate::output::one_line;
use crate::sentences::GROUPS;
use anyhow::{Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A key of a policy table, and where its values usually come from.
struct Key {
    capability: &'static str,
    key: &'static str,
    /// A list of values, or one text.
    list: bool,
    from: Source,
}

/// Where values usually come from.
enum Source {
    /// One key of the configuration, and what is meant where it is absent.
    Value(&'static str, Option<&'static str>),
    /// Structures of the configuration: where one is, and the value that stands for what is in it.
    Parts(&'static [(&'static str, &'static str)]),
}

const fn key(capability: &'static str, key: &'static str, list: bool, from: Source) -> Key {
    Key { capability, key, list, from }
}

const KEYS: &[Key] = &[
    key("veth", "mtu", false, Source::Value("mtu", Some("0"))),
    key("bridge", "names", true, Source::Value("bridge", Some("cni0"))),
    key("bridge", "mtu", false, Source::Value("mtu", Some("0"))),
    key("bridge", "vlan", false, Source::Value("vlan", Some("0"))),
    key(
        "bridge",
        "trunk",
        true,
        Source::Parts(&[
            ("/vlanTrunk", "${config.vlanTrunk.*.id}"),
            ("/vlanTrunk", "${config.vlanTrunk.*.minID}-${config.vlanTrunk.*.maxID}"),
        ]),
    ),
    key("bridge", "preserve-default-vlan", false, Source::Value("preserveDefaultVlan", Some("false"))),
    key("bridge", "promisc", false, Source::Value("promiscMode", Some("false"))),
    key("bridge", "isolated", false, Source::Value("portIsolation", Some("false"))),
    key(
        "bridge",
        "gateways",
        true,
        Source::Parts(&[
            ("/isGateway", "${config.isGateway | false}"),
            ("/isDefaultGateway", "${config.isDefaultGateway | false}"),
        ]),
    ),
    key("bridge", "force-address", false, Source::Value("forceAddress", Some("false"))),
    key("masquerade", "backends", true, Source::Value("ipMasqBackend", Some("nftables"))),
    key("ipam", "types", true, Source::Value("ipam.type", None)),
    key("leases", "directories", true, Source::Value("ipam.dataDir", Some("/var/lib/cni/networks"))),
    key(
        "leases",
        "ranges",
        true,
        Source::Parts(&[
            ("/ipam/subnet", "${config.ipam}"),
            ("/ipam/ranges", "${config.ipam.ranges.*.*}"),
            ("/runtimeConfig/ipRanges", "${config.runtimeConfig.ipRanges.*.*}"),
        ]),
    ),
    key("resolv-conf", "files", true, Source::Value("ipam.resolvConf", None)),
];

/// What an IPAM plugin hands out without having leased it: where it usually comes from.
const ADDRESSES: &[(&str, &str)] = &[
    ("/ipam/addresses", "${config.ipam.addresses.*.address}"),
    ("/args/cni/ips", "${config.args.cni.ips.*}"),
    ("/runtimeConfig/ips", "${config.runtimeConfig.ips.*}"),
];
const GATEWAYS: &[(&str, &str)] =
    &[("/ipam/addresses", "${config.ipam.addresses.*.address} via ${config.ipam.addresses.*.gateway}")];

/// The policy, with comments that say which network needed what.
///
/// # Errors
/// A name that was seen can't be written as a literal.
pub fn policy(seen: &Seen, networks: &[Network], results: &[Value], operations: usize) -> Result<String> {
    let mut out = String::new();
    let most = operations.saturating_mul(4);
    writeln!(out, "# The most operations that one call took were {operations}. Four times that leaves room:")?;
    writeln!(out, "# [limits]\n# operations = {most}")?;
    for capability in capabilities() {
        let Some(used) = seen.0.get(capability) else { continue };
        let functions: Vec<&str> = used.functions.iter().map(String::as_str).collect();
        writeln!(out, "\n# Used: {}. Needed by {}.", functions.join(", "), labels(&used.networks, networks))?;
        writeln!(out, "[grant.{capability}]")?;
        for key in KEYS.iter().filter(|key| key.capability == capability) {
            if let Some(values) = values(key, used, networks)? {
                writeln!(out, "{} = {values}", key.key)?;
            }
        }
    }
    if !seen.0.contains_key("leases") {
        out.push_str(&handed_out(networks, results)?);
    }
    Ok(out)
}

/// The widest policy for plugins with these imports. What the language can leave open is open; what it can't (a VLAN, a
/// directory) is what the configuration names.
///
/// # Errors
/// None in practice: the values are texts.
pub fn widest(imports: &Imports) -> Result<String> {
    let mut out = String::new();
    for capability in imports.authority.keys() {
        writeln!(out, "[grant.{capability}]")?;
        for key in KEYS.iter().filter(|key| key.capability == capability) {
            let open: &[&str] = match key.key {
                // It limits where it stands.
                "isolated" => continue,
                "names" | "types" => &["*"],
                "backends" => &["nftables", "iptables"],
                "promisc" | "force-address" | "preserve-default-vlan" | "gateways" => &["true"],
                // Each entry is good for one address.
                "ranges" => &["0.0.0.0/0", "0.0.0.0/0", "0.0.0.0/0", "0.0.0.0/0", "::/0", "::/0", "::/0", "::/0"],
                _ => &[],
            };
            let values: Vec<String> = match &key.from {
                _ if !open.is_empty() => open.iter().map(|value| (*value).to_owned()).collect(),
                Source::Value(path, default) => vec![placeholder(path, *default)],
                Source::Parts(parts) => parts.iter().map(|(_, value)| (*value).to_owned()).collect(),
            };
            writeln!(out, "{} = {}", key.key, written(key.list, &values)?)?;
        }
    }
    out.push_str("[result]\naddresses = [\"0.0.0.0/0\", \"::/0\"]\n");
    out.push_str("gateways = [\"0.0.0.0/0 via 0.0.0.0/0\", \"::/0 via ::/0\"]\n");
    Ok(out)
}

/// Imports that no network needed: whole capabilities, and functions of those that were used.
pub fn unused(imports: &Imports, seen: &Seen) -> BTreeMap<String, Vec<String>> {
    let mut unused = BTreeMap::new();
    for (capability, functions) in &imports.authority {
        let used = seen.0.get(capability);
        let acts = |function: &&String| {
            GROUPS.iter().any(|group| group.capability == capability && group.functions.contains(&function.as_str()))
        };
        // The log knows readers of a handle's attributes by the handle alone.
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

/// In the order of `wit/world.wit`.
fn capabilities() -> Vec<&'static str> {
    let mut all: Vec<&str> = GROUPS.iter().map(|group| group.capability).collect();
    all.dedup();
    all
}

fn labels(numbers: &BTreeSet<usize>, networks: &[Network]) -> String {
    if numbers.len() == networks.len() && networks.len() > 1 {
        return "every network".to_owned();
    }
    let label = |number: &usize| networks.get(*number).map(|network| one_line(&network.label));
    numbers.iter().filter_map(label).collect::<Vec<_>>().join(", ")
}

/// The value of a key as TOML; `None` if nothing was seen that it would have to grant.
fn values(key: &Key, used: &Used, networks: &[Network]) -> Result<Option<String>> {
    let Some(objects) = used.objects.get(key.key) else {
        // A table makes no sense without its lists, even to somebody who only removes.
        let values = match &key.from {
            _ if !key.list || key.key == "trunk" => return Ok(None),
            Source::Value(path, default) => vec![placeholder(path, *default)],
            Source::Parts(parts) => {
                let some = present(parts, networks.iter());
                if some.is_empty() { parts.iter().map(|(_, value)| (*value).to_owned()).collect() } else { some }
            }
        };
        return written(key.list, &values).map(Some);
    };
    let literal: BTreeSet<&String> = objects.values().flatten().collect();
    let chosen = match &key.from {
        Source::Value(path, default) => {
            let same = |(number, seen): (&usize, &BTreeSet<String>)| {
                let value = networks.get(*number).and_then(|network| at(network, path)).or(default.map(str::to_owned));
                seen.iter().all(|object| Some(object) == value.as_ref())
            };
            // One text can't be two: what it comes from is the best guess, and the second run tells.
            let two = !key.list && literal.len() > 1;
            if two || objects.iter().all(same) { vec![placeholder(path, *default)] } else { Vec::new() }
        }
        Source::Parts(parts) => present(parts, objects.keys().filter_map(|number| networks.get(*number))),
    };
    if !chosen.is_empty() {
        return written(key.list, &chosen).map(Some);
    }
    if let Some(open) = literal.iter().find(|object| object.contains(['*', '$'])) {
        bail!("\"{open}\" was used for {}.{}, and a policy can't name that literally", key.capability, key.key);
    }
    written(key.list, &literal.into_iter().cloned().collect::<Vec<_>>()).map(Some)
}

/// `[result]` for a plugin that answers with addresses and made no interface: an IPAM plugin that leases nothing.
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
    writeln!(out, "\n# What it may hand out.\n[result]")?;
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

/// Those values whose structure some network has.
fn present<'a>(parts: &[(&str, &str)], networks: impl Iterator<Item = &'a Network> + Clone) -> Vec<String> {
    let there =
        |at: &str| networks.clone().any(|network| network.config.pointer(at).is_some_and(|part| !part.is_null()));
    parts.iter().filter(|(at, _)| there(at)).map(|(_, value)| (*value).to_owned()).collect()
}

fn placeholder(path: &str, default: Option<&str>) -> String {
    match default {
        Some(default) => format!("${{config.{path} | {default}}}"),
        None => format!("${{config.{path}}}"),
    }
}

/// A scalar of the configuration, as a policy reads it.
fn at(network: &Network, path: &str) -> Option<String> {
    match network.config.pointer(&format!("/{}", path.replace('.', "/")))? {
        Value::String(text) => Some(text.clone()),
        value @ (Value::Number(_) | Value::Bool(_)) => Some(value.to_string()),
        _ => None,
    }
}

/// As TOML, whose basic strings take JSON's escapes.
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
    use postern_policy::Policy;
    use serde_json::json;

    fn network(label: &str, config: Value) -> Network {
        Network { label: label.to_owned(), config }
    }

    fn used(key: &'static str, objects: &[(usize, &[&str])]) -> Seen {
        let set = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        let objects: BTreeMap<usize, BTreeSet<String>> =
            objects.iter().map(|(number, values)| (*number, set(values))).collect();
        let used = Used {
            functions: set(&["ensure"]),
            networks: objects.keys().copied().collect(),
            objects: BTreeMap::from([(key, objects)]),
        };
        Seen(BTreeMap::from([("bridge".to_owned(), used)]))
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
        let mut seen = Seen::default();
        for capability in GROUPS.iter().map(|group| group.capability) {
            seen.0.entry(capability.to_owned()).or_default().networks.insert(0);
        }
        let text = policy(&seen, &networks, &[], 0).unwrap();
        Policy::parse(&text, "test.toml").unwrap();
        assert!(text.contains("backends = [\"${config.ipMasqBackend | nftables}\"]"), "{text}");
        assert!(!text.contains("vlan") && !text.contains("trunk"), "{text}");
    }

    #[test]
    fn the_widest_policy_can_be_read() {
        let list: Vec<String> = GROUPS
            .iter()
            .map(|group| format!("postern:cni/{}@0.1.0#{}", group.capability, group.functions[0]))
            .collect();
        let text = widest(&Imports::parse(&list)).unwrap();
        assert_eq!(Policy::parse(&text, "test.toml").unwrap().capabilities().len(), 15);
        assert!(!text.contains("native"), "{text}");
    }

    #[test]
    fn addresses_that_were_not_leased_are_granted_as_results() {
        let networks = [network("a", json!({"ipam": {"addresses": [{"address": "10.0.0.5/24"}]}}))];
        let result = json!({"ips": [{"address": "10.0.0.5/24"}]});
        let text = policy(&Seen::default(), &networks, &[result], 0).unwrap();
        assert!(text.contains("[result]\naddresses = [\"${config.ipam.addresses.*.address}\"]"), "{text}");
        assert!(!text.contains("gateways"), "{text}");
        let made = json!({"interfaces": [], "ips": [{"address": "10.0.0.5/24"}]});
        assert!(!policy(&Seen::default(), &networks, &[made], 0).unwrap().contains("[result]"));
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
