//! Tests that each guest reads exactly the keys of its table, and refuses configurations that are wrong by the table.

use crate::common::PLUGIN;
use crate::key::{Key, Kind};
use crate::sample;
use crate::{Delegation, Plugin, Role};
use postern_cni::recorder;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Display;

/// Objects that guests read separately: the name of each, and the places of its keys.
const APART: [(&str, &[&str]); 2] =
    [("Range", &["ipam.ranges.", "runtimeConfig.ipRanges."]), ("PortMapEntry", &["runtimeConfig.portMappings."])];

/// Objects that are no configurations.
const OTHERS: [&str; 3] = ["Result", "Error", ""];

/// Compares a guest with its table. `call` runs a verb with a configuration, on a node where the table's example works.
///
/// # Panics
/// Guest and table differ.
#[track_caller]
#[allow(clippy::panic, reason = "a test")]
pub fn check<E: Display>(name: &str, call: impl Fn(&str, &str) -> Result<String, E>) {
    let Some(plugin) = crate::plugin(name) else { panic!("{name} has no table") };
    let call = |verb: &str, config: &str| call(verb, config).map_err(|error| error.to_string());
    reads(plugin, &call);
    accepts(plugin, &call);
    refuses(plugin, &call);
}

/// The guest reads exactly the keys of the table.
#[track_caller]
#[allow(clippy::indexing_slicing, reason = "absent keys of a JSON object are null")]
fn reads(plugin: &Plugin, call: &impl Fn(&str, &str) -> Result<String, String>) {
    let mut read = BTreeSet::new();
    let mut record = |mut config: Value| {
        // A guest asks for keys only inside objects that are present.
        for key in ["runtimeConfig", "args"] {
            if config[key].is_null() {
                config[key] = json!({"cni": {}});
            }
        }
        for verb in ["ADD", "CHECK", "DEL", "STATUS"] {
            let (_, keys) = recorder::record(|| call(verb, &config.to_string()));
            read.extend(keys);
        }
    };
    record(sample::with_all(plugin));
    sample::keys(plugin).for_each(|(place, key)| record(sample::with_key(plugin, place, key)));
    let read: BTreeSet<String> = read.iter().flat_map(|(structure, path)| places(structure, path)).collect();

    let mut known = BTreeSet::new();
    for (place, key) in sample::keys(plugin) {
        let prefix = place.path(plugin).join(".");
        paths(key, &prefix, &mut known);
    }
    let mut common = BTreeSet::new();
    PLUGIN.iter().for_each(|key| paths(key, "", &mut common));
    common.extend(["ipam.type", "args.cni", "args.cni.mac", "runtimeConfig.mac"].map(str::to_owned));
    let unknown: Vec<_> = read.iter().filter(|path| !known.contains(*path) && !common.contains(*path)).collect();
    assert!(unknown.is_empty(), "{} reads keys that its table lacks: {unknown:?}", plugin.name);
    let unread: Vec<_> = known.iter().filter(|path| !read.contains(*path)).collect();
    assert!(unread.is_empty(), "the table of {} has keys that the plugin does not read: {unread:?}", plugin.name);
}

fn places(structure: &str, path: &str) -> Vec<String> {
    match APART.iter().find(|(name, _)| *name == structure) {
        Some((_, prefixes)) => prefixes.iter().map(|prefix| format!("{prefix}{path}")).collect(),
        None if OTHERS.contains(&structure) || structure.starts_with("struct") => Vec::new(),
        None => vec![path.to_owned()],
    }
}

/// Adds the paths of a key and of the keys inside it, without indexes.
fn paths(key: &Key, prefix: &str, known: &mut BTreeSet<String>) {
    let path = if prefix.is_empty() { key.name.to_owned() } else { format!("{prefix}.{}", key.name) };
    let mut kind = key.kind;
    while let Kind::List(inner) = kind {
        kind = *inner;
    }
    if let Kind::Object(keys) = kind {
        keys.iter().for_each(|key| paths(key, &path, known));
    }
    known.insert(path);
}

/// The guest accepts the example, alone and with each key.
#[track_caller]
fn accepts(plugin: &Plugin, call: &impl Fn(&str, &str) -> Result<String, String>) {
    let good = |config: &Value| {
        let added = call("ADD", &config.to_string());
        assert!(added.is_ok(), "{} refuses {config}: {added:?}", plugin.name);
    };
    good(&sample::example(plugin));
    sample::keys(plugin).for_each(|(place, key)| good(&sample::with_key(plugin, place, key)));
    // ptp leaves the check of `ipam` to the host, which finds no delegate.
    if plugin.ipam == Delegation::Required && plugin.name != "ptp" {
        let mut config = sample::example(plugin);
        config.as_object_mut().map(|map| map.remove("ipam"));
        assert!(call("ADD", &config.to_string()).is_err(), "{} works without ipam", plugin.name);
    }
    if plugin.role == Role::Chained {
        let mut config = sample::with_all(plugin);
        config.as_object_mut().map(|map| map.remove("prevResult"));
        assert!(call("ADD", &config.to_string()).is_err(), "{} works without prevResult", plugin.name);
    }
}

/// The guest refuses each configuration that is wrong by the table.
#[track_caller]
fn refuses(plugin: &Plugin, call: &impl Fn(&str, &str) -> Result<String, String>) {
    let accepted: Vec<String> = sample::broken(plugin)
        .into_iter()
        .filter(|broken| call("ADD", &broken.config.to_string()).is_ok())
        .map(|broken| format!("{:?} in {}", broken.path, broken.config))
        .collect();
    assert!(
        accepted.is_empty(),
        "{} accepts configurations that are wrong by its table:\n{}",
        plugin.name,
        accepted.join("\n")
    );
}
