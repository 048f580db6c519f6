//! The configuration of one plugin: its keys, its capabilities, its `ipam`.

use super::finding::{Sheet, below};
use super::keys::{self, Case, Unknown};
use super::text::{Node, Tree};
use super::{addresses, dhcp, rules};
use postern_cni::Version;
use postern_keys::{Delegation, Plugin, Role, common, nearest};

/// Checks an entry of a list, or the plugin of a file.
pub fn check(sheet: &mut Sheet<'_>, node: &Node, path: &str, version: Option<Version>) {
    if !matches!(node.tree, Tree::Object(_)) {
        sheet.error("wrong-type", node.at, path, format!("a plugin is an object, and this is {}", node.kind()), "");
        return;
    }
    let name = node.word("type");
    if name.is_empty() && node.get("type").is_some_and(|node| node.text().is_some()) {
        let at = node.get("type").map_or(node.at, |node| node.at);
        sheet.error("bad-value", at, &below(path, "type"), "the plugin has no name", "name the plugin's program");
    }
    let table = sheet.table(name).filter(|table| table.role != Role::Ipam);
    of_type(sheet, node, path, table, version);
}

fn of_type(sheet: &mut Sheet<'_>, node: &Node, path: &str, table: Option<&'static Plugin>, version: Option<Version>) {
    let own = table.map_or(&[][..], |table| table.keys);
    let unknown = match table {
        Some(table) => Unknown::Reported { whose: table.name },
        None => Unknown::Foreign,
    };
    keys::object(sheet, path, node, &[own, common::PLUGIN], unknown, Case::Ignored);
    let name = node.word("type");
    if !name.is_empty() && sheet.table(name).is_none() {
        sheet.note(format!("{name} is not shipped with Postern: only the keys that all plugins have were checked"));
        // Many other plugins complete `ipam` before they pass it on (Calico, Antrea), or read `ipam` without a delegate
        // (Cilium).
        return;
    }
    let delegation = table.map_or(Delegation::Optional, |table| table.ipam);
    ipam(sheet, node, path, name, delegation, version);
    let address_plugin = node.get("ipam").and_then(|ipam| postern_keys::plugin(ipam.word("type")));
    let address_plugin = address_plugin.filter(|table| table.role == Role::Ipam && delegation != Delegation::None);
    arguments(sheet, node, path, [table, address_plugin]);
    if let Some(table) = table {
        capabilities(sheet, node, path, table, address_plugin);
        if let Some(version) = version.filter(|version| !table.supports(*version)) {
            let at = node.get("type").map_or(node.at, |node| node.at);
            let message = format!("{} does not support CNI {version}", table.name);
            let help = format!("{} supports {} and later versions", table.name, table.since);
            sheet.error("version", at, &below(path, "type"), message, help);
        }
        rules::check(sheet, node, path, table, version);
    }
}

/// Checks `ipam` of a plugin.
fn ipam(sheet: &mut Sheet<'_>, node: &Node, path: &str, name: &str, delegation: Delegation, version: Option<Version>) {
    let here = below(path, "ipam");
    let Some(ipam) = node.get("ipam") else {
        if delegation == Delegation::Required {
            let message = format!("`ipam` is missing: {name} needs addresses");
            sheet.error(
                "missing-key",
                node.at,
                path,
                message,
                "`\"ipam\": {\"type\": \"host-local\", ...}` gives addresses",
            );
        }
        return;
    };
    if !matches!(ipam.tree, Tree::Object(_)) {
        return;
    }
    if delegation == Delegation::None {
        sheet.warning(
            "unused-key",
            ipam.at,
            &here,
            format!("{name} takes no addresses: `ipam` is ignored"),
            "remove `ipam`",
        );
        return;
    }
    let kind = match (ipam.word("type"), delegation) {
        ("", Delegation::HandedOn) => "host-local",
        (kind, _) => kind,
    };
    if kind.is_empty() {
        if ipam.get("type").is_none_or(|node| node.text().is_some()) {
            let message = "`type` is missing: nothing gives addresses";
            let help = "`\"type\": \"host-local\"` or `\"type\": \"static\"`";
            match delegation == Delegation::Required {
                true => sheet.error("missing-key", ipam.at, &here, message, help),
                false if !ipam.members().is_empty() => sheet.warning("missing-key", ipam.at, &here, message, help),
                false => {}
            }
        }
        return;
    }
    let Some(table) = postern_keys::plugin(kind) else {
        sheet.note(format!("{kind} is not shipped with Postern: the keys of its `ipam` were not checked"));
        return;
    };
    if table.role != Role::Ipam {
        let at = ipam.get("type").map_or(ipam.at, |node| node.at);
        sheet.error(
            "chain",
            at,
            &below(&here, "type"),
            format!("{kind} gives no addresses"),
            "host-local, static and dhcp do",
        );
        return;
    }
    const TYPE: &[postern_keys::Key] = &[postern_keys::Key::text("type", "Name of the plugin's program")];
    let unknown = Unknown::Reported { whose: table.name };
    keys::object(sheet, &here, ipam, &[table.keys, TYPE], unknown, Case::Ignored);
    addresses::check(sheet, node, ipam, &here, table, version, delegation);
    if kind == "dhcp" {
        dhcp::check(sheet, name, node, ipam, path);
    }
}

/// Checks the runtime's data: the keys of `runtimeConfig` and `args.cni` that the plugins of `tables` read.
fn arguments(sheet: &mut Sheet<'_>, node: &Node, path: &str, tables: [Option<&'static Plugin>; 2]) {
    for key in ["runtimeConfig", "prevResult"] {
        if let Some(member) = node.member(key) {
            let message = format!("only the runtime sets `{key}`");
            sheet.warning(
                "runtime-key",
                member.at,
                &below(path, key),
                message,
                "remove the key, unless a test needs it",
            );
        }
    }
    let tables = || tables.into_iter().flatten();
    if let Some(config) = node.get("runtimeConfig").filter(|node| matches!(node.tree, Tree::Object(_))) {
        let keys: Vec<_> = tables().map(|table| table.runtime).collect();
        keys::object(sheet, &below(path, "runtimeConfig"), config, &keys, Unknown::Foreign, Case::Ignored);
    }
    let Some(args) = node.get("args") else { return };
    let here = below(&below(path, "args"), "cni");
    match args.get("cni") {
        Some(cni) if tables().any(|table| !table.args.is_empty()) => {
            let keys: Vec<_> = tables().map(|table| table.args).collect();
            keys::object(sheet, &here, cni, &keys, Unknown::Foreign, Case::Ignored);
        }
        _ => {}
    }
}

/// Warns of capabilities that no runtime knows, and of capabilities that the plugin does not read.
fn capabilities(
    sheet: &mut Sheet<'_>,
    node: &Node,
    path: &str,
    table: &'static Plugin,
    address_plugin: Option<&'static Plugin>,
) {
    // The delegate may read a capability that is passed on.
    if table.ipam == Delegation::HandedOn {
        return;
    }
    let has_foreign_ipam =
        address_plugin.is_none() && !node.get("ipam").map_or("", |ipam| ipam.word("type")).is_empty();
    let own: Vec<&str> = [Some(table), address_plugin]
        .into_iter()
        .flatten()
        .flat_map(|table| table.runtime)
        .map(|key| key.name)
        .collect();
    let here = below(path, "capabilities");
    for member in node.get("capabilities").map(Node::members).unwrap_or_default() {
        let (name, at) = (member.name.as_str(), member.at);
        let place = below(&here, name);
        if own.contains(&name) || matches!(member.value.tree, Tree::Bool(false) | Tree::Null) {
            continue;
        }
        if !common::CAPABILITIES.contains(&name) {
            let help = match nearest(name, own.iter().copied().chain(common::CAPABILITIES.iter().copied())) {
                Some(near) => format!("`{near}` may be meant"),
                None => format!("runtimes know {}", common::CAPABILITIES.join(", ")),
            };
            sheet.warning(
                "unknown-capability",
                at,
                &place,
                format!("no runtime knows the capability {}", keys::quoted(name)),
                help,
            );
        } else if !has_foreign_ipam {
            let help = match own.as_slice() {
                [] => format!("{} reads none", table.name),
                own => format!("{} reads {}", table.name, own.join(", ")),
            };
            sheet.warning(
                "unused-capability",
                at,
                &place,
                format!("{} does not read the capability `{name}`", table.name),
                help,
            );
        }
    }
}

/// Checks the keys in flannel's `delegate`. These keys are no complete configuration.
pub fn check_delegate(sheet: &mut Sheet<'_>, node: &Node, path: &str, name: &str) {
    match postern_keys::plugin(name) {
        Some(table) => {
            // Keys that flannel sets itself may be absent in `delegate`.
            let optional: Vec<postern_keys::Key> = table
                .keys
                .iter()
                .chain(common::PLUGIN)
                .map(|key| postern_keys::Key { required: false, ..*key })
                .collect();
            let unknown = Unknown::Reported { whose: table.name };
            keys::object(sheet, path, node, &[&optional], unknown, Case::Ignored);
        }
        None => sheet.note(format!("{name} is not shipped with Postern: the keys of `delegate` were not checked")),
    }
}
