//! Finds, by `postern plan`, the operations of a network that policy would refuse.

use super::finding::{Severity, Sheet, below, item};
use super::network::Network;
use super::text::{Node, Tree};
use crate::plan::{self, Call, PluginReport, Report};
use serde_json::Value;

/// The largest number of plugins of a list for which policy is asked. Real lists are far shorter.
const MOST_PLUGINS: usize = 64;

/// Reports the operations of an ADD that policy refuses, each at the key that asks for it.
pub fn check(sheet: &mut Sheet<'_>, network: &Network<'_>, call: &Call<'_>) {
    if network.entries.len() > MOST_PLUGINS {
        sheet.note(format!("policy was not asked: the list has {} plugins", network.entries.len()));
        return;
    }
    match plan::report(call) {
        Ok(report) => findings(sheet, network, &report),
        Err(error) => sheet.note(format!("policy was not asked: {error:#}")),
    }
}

fn findings(sheet: &mut Sheet<'_>, network: &Network<'_>, report: &Report) {
    report.notes.iter().for_each(|note| sheet.note(note.clone()));
    for (at, plugin) in report.plugins.iter().enumerate() {
        let Some(entry) = network.entries.get(at) else { continue };
        if plugin.native {
            sheet.note(format!("{} is a native program: no policy of Postern applies", plugin.plugin));
            continue;
        }
        denials(sheet, entry.node, &entry.path, plugin);
        if let Some(error) = plugin.error.as_ref().filter(|_| !report.is_blind && !is_denied(plugin)) {
            let text = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default();
            let at = entry.node.get("type").map_or(entry.node.at, |node| node.at);
            let message = format!("an ADD on this node would fail now: {}", text("msg"));
            sheet.warning("add-fails", at, &below(&entry.path, "type"), message, text("details"));
        }
    }
}

fn is_denied(plugin: &PluginReport) -> bool {
    plugin.operations.iter().any(|operation| !operation.is_allowed())
}

fn denials(sheet: &mut Sheet<'_>, node: &Node, path: &str, plugin: &PluginReport) {
    for operation in plugin.operations.iter().filter(|operation| !operation.is_allowed()) {
        let (at, path) = asked(node, path, &operation.request)
            .unwrap_or_else(|| (node.get("type").map_or(node.at, |one| one.at), below(path, "type")));
        let message =
            format!("policy of {} refuses to {} ({})", operation.plugin, operation.words, operation.operation);
        let help = operation.missing.clone().unwrap_or_default();
        sheet.add(Severity::Error, "policy", at, &path, message, help);
    }
}

/// Returns the first place in the configuration whose text is also in the operation's request.
pub fn asked(node: &Node, path: &str, request: &Value) -> Option<(usize, String)> {
    let mut texts = Vec::new();
    collect(request, &mut texts);
    let mut found = Vec::new();
    places(node, path, &mut |place, text| {
        if texts.contains(&text) {
            found.push(place);
        }
    });
    found.into_iter().next()
}

fn collect<'v>(value: &'v Value, texts: &mut Vec<&'v str>) {
    match value {
        Value::String(text) if text.len() > 1 => texts.push(text),
        Value::Array(items) => items.iter().for_each(|one| collect(one, texts)),
        Value::Object(map) => map.values().for_each(|one| collect(one, texts)),
        _ => {}
    }
}

/// Calls `tell` for each text of a configuration. The values of `name`, `cniVersion` and `type` are left out: they
/// don't show which key asks for an operation.
fn places(node: &Node, path: &str, tell: &mut impl FnMut((usize, String), &str)) {
    match &node.tree {
        Tree::Text(text) => tell((node.at, path.to_owned()), text),
        Tree::List(items) => items.iter().enumerate().for_each(|(at, one)| places(one, &item(path, at), tell)),
        Tree::Object(members) => {
            let members = members.iter().filter(|one| !["name", "cniVersion", "type"].contains(&one.name.as_str()));
            members.for_each(|one| {
                // The request of an operation can contain the key of a map, such as the name of a sysctl.
                tell((one.at, below(path, &one.name)), &one.name);
                places(&one.value, &below(path, &one.name), tell);
            });
        }
        _ => {}
    }
}
