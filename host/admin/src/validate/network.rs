//! The keys of a network's list, its versions, and the order of its plugins.

use super::finding::{Sheet, below, item};
use super::keys::{self, Case, Unknown};
use super::plugin;
use super::text::{Node, Tree};
use postern_cni::{NumericVersion, Version, validate_network_name};
use postern_keys::{Key, Role, common};
use std::collections::BTreeSet;

/// A plugin of a network, as it was read.
#[derive(Debug)]
pub struct Entry<'n> {
    /// The place of the plugin in the file.
    pub path: String,
    /// The plugin's configuration.
    pub node: &'n Node,
}

/// A network: a list, or a file with one plugin.
#[derive(Debug)]
pub struct Network<'n> {
    /// True for a list.
    pub is_list: bool,
    /// The CNI version for the plugins; `None` if the file names an invalid or unknown version.
    pub version: Option<Version>,
    /// The network's plugins, in order.
    pub entries: Vec<Entry<'n>>,
}

/// Checks a file. `None` if it has no plugins. `is_installed` is true if runtimes read the file, and false if another
/// program may still give the network a name.
pub fn check<'n>(sheet: &mut Sheet<'_>, node: &'n Node, is_installed: bool) -> Option<Network<'n>> {
    if !matches!(node.tree, Tree::Object(_)) {
        let message = format!("a network is an object, and this is {}", node.kind());
        sheet.error("wrong-type", node.at, "", message, "");
        return None;
    }
    let exact = |name: &str| node.members().iter().rev().find(|member| member.name == name).map(|member| &member.value);
    let plugins = exact("plugins");
    // A runtime takes a file without `plugins` for a single plugin, or for a list that gets its plugins from a
    // directory.
    let is_list = plugins.is_some() || exact("type").is_none() && node.get("type").is_none();
    let version = version(sheet, node, is_list);
    name(sheet, node, is_installed);
    if !is_list {
        let entries = vec![Entry { path: String::new(), node }];
        entries.iter().for_each(|entry| plugin::check(sheet, entry.node, &entry.path, version));
        chain(sheet, &entries);
        return Some(Network { is_list, version, entries });
    }
    let unknown = Unknown::Reported { whose: "a list" };
    // The name was checked before.
    let list: Vec<Key> =
        common::LIST.iter().map(|key| Key { required: key.required && key.name != "name", ..*key }).collect();
    keys::object(sheet, "", node, &[&list], unknown, Case::Matters);
    let items = match plugins.map(|plugins| (plugins, &plugins.tree)) {
        Some((_, Tree::List(items))) if !items.is_empty() => items.as_slice(),
        Some((plugins, Tree::List(_))) => {
            sheet.error("missing-key", plugins.at, "plugins", "the list has no plugins", "name at least one plugin");
            return None;
        }
        Some((plugins, _)) => {
            sheet.error(
                "wrong-type",
                plugins.at,
                "plugins",
                format!("this is {}, and must be a list", plugins.kind()),
                "",
            );
            return None;
        }
        None => &[],
    };
    let entries: Vec<Entry<'_>> =
        items.iter().enumerate().map(|(at, node)| Entry { path: item("plugins", at), node }).collect();
    entries.iter().for_each(|entry| plugin::check(sheet, entry.node, &entry.path, version));
    Some(Network { is_list, version, entries })
}

fn name(sheet: &mut Sheet<'_>, node: &Node, is_installed: bool) {
    let Some(name) = node.get("name") else {
        let (message, help) = ("`name` is missing", "name: name of the network, unique on the node");
        match is_installed {
            true => sheet.error("missing-key", node.at, "", message, help),
            // For example, the configuration in a NetworkAttachmentDefinition has no name.
            false => {
                let message = format!("{message}: runtimes refuse a network without a name, but multus adds the name");
                sheet.warning("missing-key", node.at, "", message, help);
            }
        }
        return;
    };
    if let Some(text) = name.text()
        && let Err(error) = validate_network_name(text)
    {
        let help = "a name begins with a letter or a digit; '_', '.' and '-' may follow";
        sheet.error("bad-value", name.at, "name", error.msg, help);
    }
}

/// Returns the version that a runtime chooses.
fn version(sheet: &mut Sheet<'_>, node: &Node, is_list: bool) -> Option<Version> {
    let mut best: Option<NumericVersion> = None;
    let mut is_broken = false;
    let mut places = Vec::new();
    if is_list && let Some(list) = node.get("cniVersions") {
        places.extend(list.items().iter().enumerate().map(|(at, one)| (item("cniVersions", at), one)));
    }
    let several = !places.is_empty();
    places.extend(node.get("cniVersion").map(|one| ("cniVersion".to_owned(), one)));
    let Some((_, last)) = places.last() else { return Some(Version::V0_1_0) };
    let at = last.at;
    for (path, one) in &places {
        let Some(text) = one.text() else {
            is_broken = true;
            continue;
        };
        if text.is_empty() && path == "cniVersion" {
            continue;
        }
        match NumericVersion::parse(text) {
            Ok(number) if !several || number <= Version::LATEST.numeric() => {
                if best.is_none_or(|best| number > best) {
                    best = Some(number);
                }
            }
            Ok(_) => {}
            Err(error) => {
                is_broken = true;
                sheet.error(
                    "version",
                    one.at,
                    path,
                    format!("{} is no version: {}", postern_cni::quote(text), error.msg),
                    known(),
                );
            }
        }
    }
    if is_broken {
        return None;
    }
    let Some(best) = best else {
        // All versions of the file are newer than the known versions, or empty.
        return if several { unknown(sheet, at) } else { Some(Version::V0_1_0) };
    };
    Version::ALL.into_iter().find(|version| best == version.numeric()).or_else(|| unknown(sheet, at))
}

fn unknown(sheet: &mut Sheet<'_>, at: usize) -> Option<Version> {
    sheet.error("version", at, "cniVersion", "no plugin knows this version of the specification", known());
    None
}

fn known() -> String {
    format!("known versions: {}", Version::ALL.map(Version::as_str).join(", "))
}

/// Warns of a wrong order of plugins.
pub fn chain(sheet: &mut Sheet<'_>, entries: &[Entry<'_>]) {
    let tables: Vec<_> = entries.iter().map(|entry| sheet.table(entry.node.word("type"))).collect();
    let place =
        |entry: &Entry<'_>| (entry.node.get("type").map_or(entry.node.at, |node| node.at), below(&entry.path, "type"));
    let mut main: Option<&str> = None;
    let mut seen = BTreeSet::new();
    for (number, (entry, table)) in entries.iter().zip(&tables).enumerate() {
        let Some(table) = table else {
            main = main.or(Some(entry.node.word("type")));
            continue;
        };
        let (at, path) = place(entry);
        let name = table.name;
        if !seen.insert(name) {
            let message = format!("{name} is in this list twice");
            sheet.warning("chain", at, &path, message, "merge the two entries, or remove one entry");
        }
        match table.role {
            Role::Chained if number == 0 && entry.node.get("prevResult").is_none() => {
                let message = format!("{name} changes a link of an earlier plugin, but {name} is the first plugin");
                sheet.warning("chain", at, &path, message, format!("put {name} behind the plugin that makes the link"));
            }
            Role::Ipam => {
                let message = format!("{name} only gives addresses: no link is made");
                let help = format!("name {name} as `ipam.type` of a plugin that makes a link");
                sheet.warning("chain", at, &path, message, help);
            }
            Role::Main => {
                let joins = ["loopback", "bridge", "ipvlan"].contains(&name);
                if let Some(before) = main.filter(|before| *before != "loopback" && !joins) {
                    let message =
                        format!("{name} and {before} both make a link, and an attachment has only one interface name");
                    sheet.warning("chain", at, &path, message, "make a separate network for each");
                }
                main = main.or(Some(name));
            }
            Role::Chained => {
                let before: Option<Vec<&str>> = tables.iter().take(number).map(|table| Some((*table)?.name)).collect();
                // The effects of another vendor's plugin are unknown.
                if let Some(before) = before {
                    behind(sheet, entry, name, &before);
                }
            }
        }
    }
}

/// Warns of a plugin that needs a link, if no earlier plugin makes this link.
fn behind(sheet: &mut Sheet<'_>, entry: &Entry<'_>, name: &str, before: &[&str]) {
    // A device of host-device can be any link, also a pair. flannel calls bridge by default.
    let makes = |names: &[&str]| before.iter().any(|one| names.contains(one));
    let Some(main) = before.iter().find(|one| ["ptp", "macvlan", "ipvlan", "vlan", "dummy", "tap"].contains(one))
    else {
        return;
    };
    let key = |name: &str| entry.node.member(name).map(|member| (member.at, below(&entry.path, name)));
    match name {
        "firewall" if entry.node.word("ingressPolicy") == "same-bridge" && !makes(&["bridge", "flannel"]) => {
            let Some((at, path)) = key("ingressPolicy") else { return };
            let message = format!("an ADD would fail: `same-bridge` needs a bridge, and {main} makes none");
            sheet.warning("add-fails", at, &path, message, "`isolated`, or a list that begins with bridge");
        }
        "bandwidth" if !makes(&["bridge", "flannel", "ptp", "host-device"]) => {
            let given = ["ingressRate", "egressRate"].into_iter().find_map(key);
            let Some((at, path)) = given else { return };
            let message = format!("rates are limited at the host's end of a pair, and {main} makes no pair");
            sheet.error("chain", at, &path, message, "let bandwidth follow bridge or ptp");
        }
        _ => {}
    }
}
