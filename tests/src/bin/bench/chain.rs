//! Whole lists: native by cnitool, and ours by `postern net`, with a process for each plugin and with one for all.

use crate::{PluginSet, Sample, WARM_UP, children_cpu, row};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The first port of the node that a chain leads from. Each way has its own.
const PORT: u16 = 8090;

/// A way to run a list.
struct Way {
    name: &'static str,
    program: PathBuf,
    arguments: &'static [&'static str],
    bin: PathBuf,
    netns: String,
    network: String,
    capabilities: String,
}

/// Returns the lists by name: as Kubernetes' nodes have them, and with what Podman adds.
fn chains() -> Vec<(&'static str, Vec<Value>)> {
    let ranges = json!([[{"subnet": "10.SUBNET.0.0/16"}]]);
    let kubernetes = vec![
        json!({
            "type": "bridge", "bridge": "chainSUBNET", "isGateway": true, "ipMasq": true, "hairpinMode": true,
            "ipam": {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]},
        }),
        json!({"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}),
        json!({"type": "bandwidth", "capabilities": {"bandwidth": true}}),
    ];
    let more = [json!({"type": "firewall"}), json!({"type": "tuning", "mtu": 1400})];
    let all = kubernetes.iter().cloned().chain(more).collect();
    vec![("chain of 3", kubernetes), ("chain of 5", all)]
}

/// Measures the lists whose names have one of these patterns. The rows of the two ways share the native runs.
pub fn measure(native: &PluginSet, ours: &PluginSet, patterns: &[String], runs: usize) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    for (name, plugins) in chains() {
        if patterns.is_empty() || patterns.iter().any(|pattern| name.contains(pattern.as_str())) {
            rows.extend(measure_one(name, &plugins, native, ours, runs)?);
        }
    }
    Ok(rows)
}

fn measure_one(name: &str, plugins: &[Value], native: &PluginSet, ours: &PluginSet, runs: usize) -> Result<Vec<Value>> {
    let cnitool = PathBuf::from(std::env::var_os("POSTERN_CNITOOL").unwrap_or_else(|| "target/cnitool".into()));
    let cnitool = cnitool.join("cnitool");
    if !cnitool.is_file() {
        println!("SKIPPED: {name}: no cnitool to compare with: tests/fetch-cnitool fetches it");
        return Ok(Vec::new());
    }
    let postern = ours.bin.join("postern");
    let ways = [
        way("native", cnitool, &[], native, 0, plugins)?,
        way("a process each", postern.clone(), &["net", "--separate"], ours, 1, plugins)?,
        way("one process", postern, &["net"], ours, 2, plugins)?,
    ];
    let verbs = ["add", "check", "del"];
    let mut samples = [const { [const { Vec::new() }; 3] }; 3];
    let mut failures = [const { (0, String::new()) }; 3];
    for run in 0..WARM_UP + runs {
        // Each begins a third of the rounds.
        for at in (0..ways.len()).map(|at| (at + run) % ways.len()) {
            for (verb, of_verb) in verbs.iter().zip(&mut samples) {
                let (Some(way), Some(slot), Some(failed)) = (ways.get(at), of_verb.get_mut(at), failures.get_mut(at))
                else {
                    continue;
                };
                let (sample, failure) = call(way, verb)?;
                if run >= WARM_UP {
                    slot.push(sample);
                }
                if let Some(failure) = failure {
                    *failed = (failed.0 + 1, failure);
                    // As in the other rows: the native DEL may fail the first time.
                    if *verb == "del" {
                        call(way, verb)?;
                    }
                }
            }
        }
    }
    let mut rows = Vec::new();
    for (verb, [native, separate, together]) in verbs.iter().zip(samples) {
        rows.push(row(&format!("{name}, a process each, {}", verb.to_uppercase()), native.clone(), separate));
        rows.push(row(&format!("{name}, one process, {}", verb.to_uppercase()), native, together));
    }
    for (way, (count, text)) in ways.iter().zip(failures) {
        if count > 0 {
            let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(150).collect();
            println!("    {} failed {count} of {} times: {text}", way.name, 3 * (WARM_UP + runs));
        }
    }
    Ok(rows)
}

fn way(
    name: &'static str,
    program: PathBuf,
    arguments: &'static [&'static str],
    set: &PluginSet,
    number: usize,
    plugins: &[Value],
) -> Result<Way> {
    // Each way has its own bridge, addresses, port and container.
    let network = format!("chain{number}-{}", plugins.len());
    let directory = format!("/run/{network}");
    let list = json!({"cniVersion": "1.0.0", "name": network, "plugins": plugins});
    let subnet = 100 + 10 * number + plugins.len();
    fs::create_dir_all(&directory)?;
    fs::write(format!("{directory}/a.conflist"), list.to_string().replace("SUBNET", &subnet.to_string()))?;
    let made = Command::new("ip").args(["netns", "add", &network]).status()?;
    anyhow::ensure!(made.success(), "ip netns add {network}");
    let port = usize::from(PORT) + 10 * number + plugins.len();
    let rate = 8_000_000;
    let capabilities = json!({
        "portMappings": [{"hostPort": port, "containerPort": 80, "protocol": "tcp"}],
        "bandwidth": {"ingressRate": rate, "ingressBurst": rate, "egressRate": rate, "egressBurst": rate},
    });
    let netns = format!("/run/netns/{network}");
    Ok(Way { name, program, arguments, bin: set.bin.clone(), netns, network, capabilities: capabilities.to_string() })
}

fn call(way: &Way, verb: &str) -> Result<(Sample, Option<String>)> {
    let mut command = Command::new(&way.program);
    command.args(way.arguments).args([verb, &way.network, &way.netns]);
    command.env("CNI_PATH", &way.bin).env("NETCONFPATH", format!("/run/{}", way.network));
    command.env("CAP_ARGS", &way.capabilities).stdin(Stdio::null());
    let cpu_before = children_cpu()?;
    let start = Instant::now();
    let output = command.output().with_context(|| way.program.display().to_string())?;
    let wall = i64::try_from(start.elapsed().as_micros())?;
    let sample = Sample { wall, cpu: children_cpu()? - cpu_before };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((sample, (!output.status.success()).then_some(said)))
}
