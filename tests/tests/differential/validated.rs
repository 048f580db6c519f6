//! No false alarms: where an ADD succeeds, `postern net validate` finds no error in its configuration.

use anyhow::{Context, Result};
use postern_tests::Case;
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// Returns what is found in configurations that worked. The native plugins by themselves have no `postern` to ask.
pub fn alarms(ours: &Path, case: &Case, tree: &Value) -> Result<Vec<String>> {
    let host = ours.join("postern");
    let mut alarms = Vec::new();
    if !host.is_file() {
        return Ok(alarms);
    }
    for config in case.added(tree)? {
        let Some(config) = as_file(&config, case.plugin()) else { continue };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = std::env::temp_dir().join(format!("postern-validated-{}-{number}.conf", std::process::id()));
        std::fs::write(&file, &config)?;
        let output = Command::new(&host).args(["net", "validate", "--file-only", "--json"]).arg(&file).output()?;
        std::fs::remove_file(&file)?;
        let report: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{config}: {}", String::from_utf8_lossy(&output.stderr)))?;
        let found = report.get("findings").and_then(Value::as_array).cloned().unwrap_or_default();
        let text = |one: &Value, key: &str| one.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let errors = found.iter().filter(|one| text(one, "severity") == "error");
        alarms.extend(errors.map(|one| format!("{}: {} in {config}", text(one, "path"), text(one, "message"))));
        // Warnings about the network as a whole are no business of a schema.
        let about_keys =
            |one: &&Value| !["chain", "runtime-key", "unused-capability"].contains(&text(one, "code").as_str());
        if found.iter().filter(about_keys).count() == 0 {
            keep(&config)?;
        }
    }
    Ok(alarms)
}

/// Adds a configuration without findings to the file `POSTERN_CORPUS`, for `tests/schemas`: the schemas must accept it.
fn keep(config: &str) -> Result<()> {
    let Some(path) = std::env::var_os("POSTERN_CORPUS") else { return Ok(()) };
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    Ok(file.write_all(format!("{}\n", serde_json::from_str::<Value>(config)?).as_bytes())?)
}

/// Returns the configuration as a file has it: with the plugin's name.
fn as_file(config: &str, plugin: &str) -> Option<String> {
    let mut value: Value = serde_json::from_str(config).ok()?;
    let map = value.as_object_mut()?;
    if map.keys().any(|key| key.eq_ignore_ascii_case("type")) {
        return Some(config.to_owned());
    }
    map.insert("type".to_owned(), plugin.into());
    Some(value.to_string())
}
