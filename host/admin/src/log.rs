//! `postern log`: the audit log for people.

use anyhow::{Context, Result};
use postern_gate::{LOG, places};
use serde_json::Value;
use std::io::ErrorKind;

/// Prints the log, oldest first.
pub fn run(container: Option<&str>, json: bool) -> Result<()> {
    let newest = places::state().join(LOG);
    for path in [newest.with_extension("jsonl.1"), newest] {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(e).with_context(|| format!("{}", path.display())),
        };
        for line in text.lines() {
            let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
            let field = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let of = field("attachment").split('/').nth(1).unwrap_or_default();
            if container.is_some_and(|container| container != of) {
                continue;
            }
            if json {
                println!("{line}");
            } else {
                println!("{}", printable(&sentence(&entry, field)));
            }
        }
    }
    Ok(())
}

/// A plugin's own words must not write lines, or tell the terminal what to do.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

fn sentence<'a>(entry: &'a Value, field: impl Fn(&str) -> &'a str) -> String {
    let micros = entry.get("micros").and_then(Value::as_u64).unwrap_or_default();
    let objects = entry.get("request").and_then(Value::as_object).map(|request| {
        let shown = request.iter().filter(|(key, value)| *key != "op" && !value.is_null());
        shown.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    });
    let verdict = match field("decision") {
        "deny" => "DENIED",
        _ => "allowed",
    };
    let result = field("result");
    let result = if result == "ok" { String::new() } else { format!("  -> {result}") };
    format!(
        "{:<6} {:<11} {:<7} {:<24} {:>7} us  {}{result}",
        field("verb"),
        field("plugin"),
        verdict,
        field("operation"),
        micros,
        objects.unwrap_or_default(),
    )
}
