//! No false alarms: if an ADD succeeds, `postern net validate` finds no error in its configuration.

use anyhow::{Context, Result, ensure};
use postern_tests::Case;
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// Returns the errors that `postern net validate` finds in configurations that worked. If `ours` are the native
/// plugins, there is no `postern`, and the list is empty.
pub fn alarms(ours: &Path, case: &Case, tree: &Value) -> Result<Vec<String>> {
    let host = ours.join("postern");
    let mut alarms = Vec::new();
    if !host.is_file() {
        return Ok(alarms);
    }
    for config in case.added(tree)? {
        let Some(config) = as_file(&config, case.plugin()) else { continue };
        let findings = findings(&host, &config)?;
        alarms.extend(errors(&findings).map(|error| format!("{error} in {config}")));
        // A schema can't express warnings about the whole network.
        let about_keys = |one: &&Value| !["chain", "runtime-key", "unused-capability"].contains(&text(one, "code"));
        if findings.iter().filter(about_keys).count() == 0 {
            keep(&config)?;
        }
    }
    Ok(alarms)
}

/// Fails if this module misses an error: of two configurations, only one has an error.
pub fn are_seen(ours: &Path) -> Result<()> {
    let host = ours.join("postern");
    if !host.is_file() {
        return Ok(());
    }
    for (mtu, expected) in [("1400", 0), ("\"1400\"", 1)] {
        let config = format!(r#"{{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "mtu": {mtu}}}"#);
        let findings = findings(&host, &config)?;
        let seen = errors(&findings).count();
        ensure!(seen == expected, "`postern net validate` reports {seen} errors instead of {expected}: {config}");
    }
    Ok(())
}

/// Returns the findings of `postern net validate` in a single configuration.
fn findings(host: &Path, config: &str) -> Result<Vec<Value>> {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("postern-validated-{}-{number}.conf", std::process::id()));
    std::fs::write(&file, config)?;
    let output = Command::new(host).args(["net", "validate", "--file-only", "--json"]).arg(&file).output()?;
    std::fs::remove_file(&file)?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{config}: {}", String::from_utf8_lossy(&output.stderr)))?;
    report.get("findings").and_then(Value::as_array).cloned().with_context(|| format!("{config}: {report}"))
}

/// Returns the errors among findings, each with its place.
fn errors(findings: &[Value]) -> impl Iterator<Item = String> {
    let errors = findings.iter().filter(|one| text(one, "severity") == "error");
    errors.map(|one| format!("{}: {}", text(one, "path"), text(one, "message")))
}

fn text<'a>(finding: &'a Value, key: &str) -> &'a str {
    finding.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Adds a configuration without findings to the file `POSTERN_CORPUS`, for `tests/schemas`: the schemas must accept it.
fn keep(config: &str) -> Result<()> {
    let Some(path) = std::env::var_os("POSTERN_CORPUS") else { return Ok(()) };
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    Ok(file.write_all(format!("{}\n", serde_json::from_str::<Value>(config)?).as_bytes())?)
}

/// Returns the configuration with the plugin's name, as in a file.
fn as_file(config: &str, plugin: &str) -> Option<String> {
    let mut value: Value = serde_json::from_str(config).ok()?;
    let map = value.as_object_mut()?;
    if map.keys().any(|key| key.eq_ignore_ascii_case("type")) {
        return Some(config.to_owned());
    }
    map.insert("type".to_owned(), plugin.into());
    Some(value.to_string())
}
