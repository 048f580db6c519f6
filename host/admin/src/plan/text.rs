//! A plan for people.

use super::report::{OperationReport, PluginReport, Report};
use crate::output::{one_line, whole};
use serde_json::Value;

/// Returns the whole plan.
pub fn text(report: &Report) -> String {
    let version = if report.version.is_empty() { String::new() } else { format!(" (CNI {})", report.version) };
    let mut lines = vec![format!(
        "ADD of container {}, interface {}, to network {}{version}, as this node is now; nothing is changed",
        report.container,
        report.ifname,
        one_line(&report.network),
    )];
    lines.extend(report.notes.iter().map(|note| format!("note: {}", one_line(note))));
    let mut number = 0;
    for plugin in &report.plugins {
        lines.push(String::new());
        plugin_lines(plugin, &mut number, &mut lines);
    }
    lines.push(String::new());
    if !report.result.is_null() {
        let were = if report.allowed { "" } else { ", if policy allowed all operations" };
        lines.push(format!("the runtime would get{were}"));
        let result = serde_json::to_string_pretty(&report.result).unwrap_or_default();
        lines.extend(result.lines().map(|line| whole(&format!("  {line}"))));
        lines.push(String::new());
    }
    lines.push(verdict(report));
    lines.join("\n")
}

fn plugin_lines(plugin: &PluginReport, number: &mut usize, lines: &mut Vec<String>) {
    if plugin.native && plugin.error.is_none() {
        lines.push(format!(
            "{}: a native plugin, not in Postern's catalog: the plan does not run it and asks no policy; the plan \
             assumes that this plugin returns the result of earlier plugins unchanged",
            one_line(&plugin.plugin)
        ));
        return;
    }
    lines.push(heading(&plugin.plugin, plugin.digest.as_deref(), &plugin.policy));
    let mut depth = 0;
    for operation in &plugin.operations {
        if operation.depth > depth
            && let Some(delegate) = plugin.delegates.iter().find(|delegate| delegate.plugin == operation.plugin)
        {
            let heading = heading(&delegate.plugin, Some(&delegate.digest), &delegate.policy);
            lines.push(format!("      {}{heading}", indent(operation)));
        }
        depth = operation.depth;
        *number += 1;
        operation_lines(operation, *number, lines);
    }
    if let Some(error) = &plugin.error {
        let text = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default();
        let code = error.get("code").and_then(Value::as_u64).unwrap_or_default();
        let details = if text("details").is_empty() { String::new() } else { format!("; {}", text("details")) };
        lines.push(format!("  FAILS with code {code}: {}{}", one_line(text("msg")), one_line(&details)));
    }
}

fn operation_lines(operation: &OperationReport, number: usize, lines: &mut Vec<String>) {
    let rule = match (operation.rule, operation.from) {
        (Some(rule), Some(from)) => format!("{rule}, {from}"),
        _ => "DENIED".to_owned(),
    };
    let indent = format!("      {}", indent(operation));
    lines.push(format!("{number:>4}  {}{}", self::indent(operation), one_line(&operation.words)));
    lines.push(format!("{indent}  [{}; {rule}]", operation.leaves()));
    if let Some(missing) = &operation.missing {
        lines.push(format!("{indent}! policy of {}: {}", one_line(&operation.plugin), one_line(missing)));
    }
    if operation.outcome != "ok" && operation.missing.is_none() {
        lines.push(format!("{indent}! {}", one_line(&operation.outcome)));
    }
}

/// Returns a plugin with the beginning of its digest, and its policy.
fn heading(plugin: &str, digest: Option<&str>, policy: &[String]) -> String {
    let digest = digest.and_then(|digest| digest.get(..12)).map(|digest| format!("  sha256:{digest}..."));
    format!("{}{}  policy {}", one_line(plugin), digest.unwrap_or_default(), policy.join(" and "))
}

fn indent(operation: &OperationReport) -> String {
    "    ".repeat(usize::try_from(operation.depth).unwrap_or_default())
}

/// Returns the last line.
fn verdict(report: &Report) -> String {
    let operations = || report.plugins.iter().flat_map(|plugin| &plugin.operations);
    let denied: Vec<&OperationReport> = operations().filter(|operation| !operation.is_allowed()).collect();
    let failed = report.plugins.iter().find(|plugin| plugin.error.is_some());
    match (denied.as_slice(), failed) {
        ([first, ..], _) => format!(
            "policy refuses {} of {} operations: an ADD would fail at {} of {}, and be undone",
            denied.len(),
            operations().count(),
            first.operation,
            one_line(&first.plugin)
        ),
        ([], Some(plugin)) if report.is_blind => format!(
            "the plan ends in {}, because this user can't look into the container: run `postern plan` as root",
            one_line(&plugin.plugin)
        ),
        ([], Some(plugin)) => format!("an ADD would fail in {}, and be undone", one_line(&plugin.plugin)),
        ([], None) if report.is_cut => match operations().count() {
            0 => "policy was asked about no operation: a note above says what is unknown".to_owned(),
            count => {
                format!("policy allows all {count} operations that are known; a note above says what is unknown")
            }
        },
        ([], None) => format!("policy allows all {} operations", operations().count()),
    }
}
