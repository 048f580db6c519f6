//! Whole lists: native by cnitool, and ours by `postern net`, with a process for each plugin and with one for all.

use crate::rounds::REST;
use crate::{Options, PluginSet, Sets, WARM_UP, floors};
use anyhow::{Result, ensure};
use postern_tests::floor::is_built;
use postern_tests::measure::{Measured, Sample, timed_with_errors};
use postern_tests::merge;
use postern_tests::report::{FLOOR, NATIVE, OURS, Row, START, WALLS};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

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

/// The parts of the floor for each plugin of a list.
fn parts(name: &str) -> Option<[&'static str; 3]> {
    (name == "chain of 3").then_some(["lease+bridge+route+masquerade-iptables", "portmap", "bandwidth"])
}

/// Measures the lists that are asked for. The rows of the two ways share the native runs.
pub fn measure(sets: &Sets, floor: &str, options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, plugins) in chains() {
        if options.wants(name) {
            rows.extend(measure_one(name, &plugins, sets, floor, options.runs)?);
        }
    }
    Ok(rows)
}

fn measure_one(
    name: &str,
    plugins: &[Value],
    [native, ours, walls]: &Sets,
    floor: &str,
    runs: usize,
) -> Result<Vec<Row>> {
    let cnitool = PathBuf::from(std::env::var_os("POSTERN_CNITOOL").unwrap_or_else(|| "target/cnitool".into()));
    let cnitool = cnitool.join("cnitool");
    if !cnitool.is_file() {
        println!("SKIPPED: {name}: no cnitool to compare with: tests/fetch-cnitool fetches it");
        return Ok(Vec::new());
    }
    // The runtime too lies where the plugins lie.
    let copied = native.bin.join("cnitool");
    fs::copy(&cnitool, &copied)?;
    let postern = ours.bin.join("postern");
    let ways = [
        way("native", copied, &[], native, 0, plugins)?,
        way("a process each", postern.clone(), &["net", "--separate"], ours, 1, plugins)?,
        way("one process", postern, &["net"], ours, 2, plugins)?,
    ];
    let verbs = ["add", "check", "del"];
    let mut rows: Vec<Row> = Vec::new();
    for way in ["a process each", "one process"] {
        rows.extend(verbs.map(|verb| Row::new(format!("{name}, {way}, {}", verb.to_uppercase()))));
    }
    let mut said = [const { String::new() }; 3];
    for run in 0..WARM_UP + runs {
        // Each way begins a third of the rounds. Floor and walls come last.
        for at in (0..ways.len()).map(|at| (at + run) % ways.len()) {
            std::thread::sleep(REST);
            for (verb, name) in verbs.iter().enumerate() {
                let (Some(way), Some(said)) = (ways.get(at), said.get_mut(at)) else { continue };
                let (made, errors) = timed_with_errors(&mut command(way, name))?;
                if run < WARM_UP {
                    continue;
                }
                let side = if at == 0 { NATIVE } else { OURS };
                let of = |row: usize| row % verbs.len() == verb && (at == 0 || row / verbs.len() == at - 1);
                for (_, row) in rows.iter_mut().enumerate().filter(|(row, _)| of(*row)) {
                    row.sample(side, made.sample);
                    if !made.succeeded {
                        *row.failures.entry(side.to_owned()).or_default() += 1;
                    }
                }
                if !made.succeeded {
                    *said = errors;
                    // As in the other rows: the native DEL may fail the first time.
                    if *name == "del" {
                        timed_with_errors(&mut command(way, name))?;
                    }
                }
            }
        }
        let Some(parts) = parts(name).filter(|_| is_built()) else { continue };
        std::thread::sleep(REST);
        let whole = floors::list(&parts, floor)?;
        std::thread::sleep(REST);
        let start = floors::list(&parts.map(|_| "none"), floor)?;
        std::thread::sleep(REST);
        let samples = [(FLOOR, whole), (START, start), (WALLS, walls_of_list(walls, plugins)?)];
        for (side, samples) in samples.into_iter().filter(|_| run >= WARM_UP) {
            for (verb, sample) in ["ADD", "DEL"].into_iter().zip(samples) {
                let name = format!("{name}, a process each, {verb}");
                rows.iter_mut().filter(|row| row.name == name).for_each(|row| row.sample(side, sample));
            }
        }
    }
    for row in &rows {
        crate::print(row);
    }
    for (way, text) in ways.iter().zip(said).filter(|(_, text)| !text.is_empty()) {
        println!("    {} failed: {}", way.name, crate::short(&text));
    }
    fs::remove_file(native.bin.join("cnitool"))?;
    Ok(rows)
}

/// The walls of a list with a process for each plugin: the sums of their ADDs, and of their DELs.
fn walls_of_list(walls: &PluginSet, plugins: &[Value]) -> Result<[Sample; 2]> {
    let call = |plugin: &Value, verb: &str, previous: &Value| -> Result<Measured> {
        let mut config: Value = serde_json::from_str(&plugin.to_string().replace("SUBNET", "4"))?;
        merge(&mut config, &json!({"cniVersion": "1.0.0", "name": "walls", "runtimeConfig": runtime_config(PORT)}));
        let kind = plugin.get("type").and_then(Value::as_str).unwrap_or_default();
        let made = walls.call(kind, &config, verb, previous)?;
        ensure!(made.succeeded, "the walls of {kind}: {}", made.stdout);
        Ok(made)
    };
    let (mut previous, mut adds) = (Value::Null, Sample::default());
    for plugin in plugins {
        let made = call(plugin, "ADD", &previous)?;
        previous = serde_json::from_str(&made.stdout)?;
        adds = [adds, made.sample].into_iter().sum();
    }
    let dels = plugins.iter().rev().map(|plugin| Ok(call(plugin, "DEL", &previous)?.sample)).sum::<Result<Sample>>()?;
    Ok([adds, dels])
}

/// What a runtime adds for the capabilities of the lists.
fn runtime_config(port: u16) -> Value {
    let rate = 8_000_000;
    json!({
        "portMappings": [{"hostPort": port, "containerPort": 80, "protocol": "tcp"}],
        "bandwidth": {"ingressRate": rate, "ingressBurst": rate, "egressRate": rate, "egressBurst": rate},
    })
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
    let capabilities = runtime_config(PORT + u16::try_from(10 * number + plugins.len())?);
    let netns = format!("/run/netns/{network}");
    Ok(Way { name, program, arguments, bin: set.bin.clone(), netns, network, capabilities: capabilities.to_string() })
}

fn command(way: &Way, verb: &str) -> Command {
    let mut command = Command::new(&way.program);
    command.args(way.arguments).args([verb, &way.network, &way.netns]);
    command.env("CNI_PATH", &way.bin).env("NETCONFPATH", format!("/run/{}", way.network));
    command.env("CAP_ARGS", &way.capabilities);
    command
}
