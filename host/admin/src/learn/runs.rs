//! Runs of a plugin, started as by a runtime, and the gate's log of these runs.

use super::catalog::BIN;
use super::place::{NETNS, on_node};
use super::{before, device, parent, tap};
use crate::imports::Imports;
use crate::lists::Network;
use anyhow::{Context, Result};
use postern_cni::Version;
use postern_gate::LOG;
use postern_types::Capability;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The possible places of the audit log.
const LOGS: [&str; 2] = ["/var/log/postern", "/run/postern"];

const CONTAINER: &str = "learn";

/// One verb and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// `ADD`, `CHECK`, …
    pub verb: &'static str,
    /// The plugin's error, in its own words; `null` if it succeeded.
    pub error: Option<String>,
}

/// The observations of one network's run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The outcomes of all calls, in order.
    pub outcomes: Vec<Outcome>,
    /// The plugin's own lines of the audit log.
    pub lines: Vec<Value>,
    /// The result of ADD.
    pub result: Value,
}

impl Run {
    /// Returns the operations that policy denied: `bridge.ensure: message`.
    pub fn denied(&self) -> Vec<String> {
        let text = |line: &Value, key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let denied = self.lines.iter().filter(|line| text(line, "decision") == "deny");
        denied.map(|line| format!("{}: {}", text(line, "operation"), text(line, "result"))).collect()
    }

    /// Returns the largest number of operations of one verb.
    pub fn operations(&self) -> usize {
        let of = |verb: &str| {
            self.lines.iter().filter(|line| line.get("verb").and_then(Value::as_str) == Some(verb)).count()
        };
        self.outcomes.iter().map(|outcome| of(outcome.verb)).max().unwrap_or_default()
    }
}

/// Attaches a container to the network, checks it and detaches it, on a separate node. For a plugin that stacks its
/// link on another link, or moves a link, the node has that link.
///
/// # Errors
/// The plugin can't be started, or the kernel refuses a node. The failure of a plugin is an outcome, and no error.
pub fn run(plugin: &str, ifname: &str, network: &Network, imports: &Imports) -> Result<Run> {
    on_node(|| {
        let network = &before::make(network, imports)?;
        let ifname = before::ifname(network, imports).unwrap_or(ifname);
        if imports.has(Capability::Parent) {
            parent::make(network)?;
        }
        if imports.has(Capability::Device) {
            device::make(network)?;
        }
        if imports.has(Capability::Tap) {
            tap::make(network)?;
        }
        let version = Version::parse(network.text("/cniVersion")).unwrap_or(Version::V0_1_0);
        let gc = version >= Version::V1_1_0;
        let mut run = Run::default();
        let mut call = |verb: &'static str, more: &Value| -> Result<Value> {
            let mut config = network.config.clone();
            if let (Value::Object(config), Value::Object(more)) = (&mut config, more) {
                config.extend(more.clone());
            }
            let (answer, error) = call(plugin, ifname, verb, &config)?;
            run.outcomes.push(Outcome { verb, error });
            Ok(answer)
        };
        if gc {
            call("STATUS", &Value::Null)?;
        }
        let result = call("ADD", &Value::Null)?;
        let previous = if result.is_object() { json!({"prevResult": result}) } else { Value::Null };
        if result.is_object() && version >= Version::V0_4_0 {
            call("CHECK", &previous)?;
        }
        if gc {
            call("GC", &json!({"cni.dev/valid-attachments": [{"containerID": CONTAINER, "ifname": ifname}]}))?;
        }
        call("DEL", if version >= Version::V0_4_0 { &previous } else { &Value::Null })?;
        run.result = result;
        run.lines = log(plugin)?;
        Ok(run)
    })
}

/// Makes one call. Returns the result, or null without a result, and the error.
fn call(plugin: &str, ifname: &str, verb: &str, config: &Value) -> Result<(Value, Option<String>)> {
    let program = Path::new(BIN).join(plugin);
    let mut child = Command::new(&program)
        .env_clear()
        .envs([
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", CONTAINER),
            ("CNI_NETNS", NETNS),
            ("CNI_IFNAME", ifname),
            ("CNI_PATH", BIN),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A plugin that ends without reading its input prints the reason itself.
        let _ = stdin.write_all(config.to_string().as_bytes());
    }
    let output = child.wait_with_output()?;
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    if output.status.success() {
        return Ok((answer, None));
    }
    let text = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or_default();
    let error = match (text("msg"), text("details")) {
        ("", _) => format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()),
        (message, "") => message.to_owned(),
        (message, details) => format!("{message} ({details})"),
    };
    Ok((Value::Null, Some(error)))
}

/// Returns the plugin's own lines of the audit log, oldest first.
fn log(plugin: &str) -> Result<Vec<Value>> {
    let mut lines = Vec::new();
    for directory in LOGS {
        let newest = Path::new(directory).join(LOG);
        for path in [newest.with_extension("jsonl.1"), newest] {
            let text = match std::fs::read_to_string(&path) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            };
            let own = |line: &Value| line.get("plugin").and_then(Value::as_str) == Some(plugin);
            lines.extend(text.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(own));
        }
    }
    Ok(lines)
}
