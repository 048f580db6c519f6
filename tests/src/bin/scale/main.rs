//! A benchmark of runs on a node with many attachments. It fills a node. After each count it measures ADD, CHECK and
//! DEL of one more attachment, and the GC verb with all attachments valid. It also measures the floor: the same netlink
//! messages, sent by a program that does nothing else. The time of a run beyond the floor is ours.
//!
//! `postern-bench-scale [--counts 1,1000,10000] [--runs N] [--patch JSON] [--behind JSON] [--no-flood] [--json FILE]
//! [--then COMMAND] [LABEL=DIRECTORY...]`, under `tests/in-namespaces`.
//!
//! With `--behind` each attachment also has this plugin in its list, and the plugin's runs are measured instead of the
//! bridge's. `PORT` in the text is a number of the attachment's own.
//!
//! With `--no-flood` the filling's ports take no frames for receivers that the bridge doesn't know. Otherwise the
//! kernel gives each new link's first frames to a thousand ports. That takes longer than a run, and counts as time of
//! the running process.
//!
//! Directories of plugins are measured by turns on the same node, and the first one fills the node. Without a
//! directory, the plugins under test are measured beside the native ones. A bridge and its network take 1,000
//! attachments, and a namespace of the filling takes 100. The host has the same objects for each as with one namespace
//! per attachment.

#![allow(clippy::print_stdout, reason = "its output is a table")]

mod floor;
mod nft;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use postern_tests::{merge, native_bin, plugin_bin};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The number of attachments per bridge; a bridge takes 1023 ports.
const PER_BRIDGE: usize = 1000;
const PER_NAMESPACE: usize = 100;
/// The number of the attachment that is measured.
const PROBE: usize = 50_000;
/// The number of runs before the first that counts.
const WARM_UP: usize = 2;
/// The rest before each measured call. After a DEL the kernel's workers still hold the lock of all links for a while,
/// the longer the more ports there are. A run that waits for that lock would count it as its own time.
const REST: Duration = Duration::from_millis(60);
/// The number of attachments that are made at once while the node is filled.
const WORKERS: usize = 3;

/// The plugins to measure.
struct Side {
    label: String,
    bin: PathBuf,
}

/// The microseconds of one call: wall time and CPU time.
#[derive(Clone, Copy)]
struct Sample {
    wall: u64,
    cpu: u64,
}

struct Options {
    counts: Vec<usize>,
    runs: usize,
    patch: Value,
    behind: Option<String>,
    flood: bool,
    file: Option<String>,
    then: Option<String>,
    sides: Vec<Side>,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, rest @ ..] = arguments.as_slice()
        && first == "floor"
    {
        return floor::run(rest);
    }
    ensure!(
        std::env::var_os("POSTERN_PRIVATE").is_some(),
        "not in private namespaces: start it with tests/in-namespaces"
    );
    let options = options(arguments)?;
    sh(&["ip", "netns", "add", "probe"])?;
    let mut filled = 0;
    let mut rows = Vec::new();
    println!("{:<12}{:>7} {:<7}{:>11}{:>9}{:>9}{:>10}", "", "count", "", "median ms", "quarter", "CPU ms", "beyond");
    for count in &options.counts {
        let first = options.sides.first().context("no plugins")?;
        fill(first, &options, filled, *count)?;
        filled = filled.max(*count);
        if !options.flood {
            stop_flooding()?;
        }
        rows.extend(measure(&options, *count)?);
    }
    if let Some(file) = &options.file {
        std::fs::write(file, serde_json::to_string_pretty(&rows)?).with_context(|| file.clone())?;
    }
    // A command to look at a full node by other means.
    if let Some(then) = &options.then {
        let status = Command::new("sh").args(["-c", then]).status()?;
        ensure!(status.success(), "{then}: {status}");
    }
    Ok(())
}

fn options(arguments: Vec<String>) -> Result<Options> {
    let mut options = Options {
        counts: vec![1, 1000],
        runs: 20,
        patch: json!({}),
        behind: None,
        flood: true,
        file: None,
        then: None,
        sides: Vec::new(),
    };
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--counts" => options.counts = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--runs" => options.runs = value()?.parse()?,
            "--patch" => options.patch = serde_json::from_str(&value()?)?,
            "--behind" => options.behind = Some(value()?),
            "--no-flood" => options.flood = false,
            "--json" => options.file = Some(value()?),
            "--then" => options.then = Some(value()?),
            side => match side.split_once('=') {
                Some((label, bin)) => options.sides.push(Side { label: label.to_owned(), bin: bin.into() }),
                None => bail!(
                    "unknown argument {side}; usage: postern-bench-scale [--counts N,...] [--runs N] [--patch JSON] \
                     [--behind JSON] [--no-flood] [--json FILE] [--then COMMAND] [LABEL=DIRECTORY...]"
                ),
            },
        }
    }
    if options.sides.is_empty() {
        options.sides = vec![
            Side { label: "ours".to_owned(), bin: plugin_bin()? },
            Side { label: "native".to_owned(), bin: native_bin()? },
        ];
    }
    Ok(options)
}

fn sh(words: &[&str]) -> Result<()> {
    let (program, rest) = words.split_first().context("no program")?;
    let output = Command::new(program).args(rest).output()?;
    ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Sets all ports so that they get no frames for unknown receivers.
fn stop_flooding() -> Result<()> {
    let output = Command::new("bridge").args(["-j", "link"]).output()?;
    let links: Vec<Value> = serde_json::from_slice(&output.stdout).context("bridge -j link")?;
    let line = |name: &str| format!("link set dev {name} flood off mcast_flood off bcast_flood off\n");
    let lines: String = links.iter().filter_map(|link| link.get("ifname")?.as_str().map(line)).collect();
    std::fs::write("/run/ports", lines)?;
    sh(&["bridge", "-batch", "/run/ports"])
}

/// Returns the network of a bridge.
fn network(bridge: usize, patch: &Value) -> Value {
    let mut config = json!({
        "cniVersion": "1.1.0", "name": format!("scale{bridge}"), "type": "bridge", "bridge": format!("scale{bridge}"),
        "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": format!("10.{}.0.0/16", 100 + bridge)}]]},
    });
    merge(&mut config, patch);
    config
}

/// Returns the plugin behind the bridge in an attachment's list.
fn behind(text: &str, bridge: usize, number: usize, previous: &Value) -> Result<Value> {
    let text = text.replace("PORT", &(10_000 + number).to_string());
    let mut config: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    merge(&mut config, &json!({"cniVersion": "1.1.0", "name": format!("scale{bridge}"), "prevResult": previous}));
    Ok(config)
}

/// Returns container, its namespace and interface of an attachment of the filling. The containers of one namespace have
/// each their own name: attachments of one container share chains of iptables.
fn filler(number: usize) -> (String, String, String) {
    (format!("c{number}"), format!("fill{}", number / PER_NAMESPACE), format!("eth{}", number % PER_NAMESPACE))
}

/// Makes the attachments `from` to `to`, by real runs.
fn fill(side: &Side, options: &Options, from: usize, to: usize) -> Result<()> {
    for number in from / PER_NAMESPACE..to.div_ceil(PER_NAMESPACE) {
        // If they were made before, this is refused.
        let _ = sh(&["ip", "netns", "add", &format!("fill{number}")]);
    }
    let next = AtomicUsize::new(from);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= to {
                    return Ok(());
                }
                let (container, netns, ifname) = filler(number);
                let bridge = number / PER_BRIDGE;
                let add = |config: &Value| -> Result<Value> {
                    let (_, output, succeeded) = call(&side.bin, "ADD", &container, &netns, &ifname, config)?;
                    ensure!(succeeded, "attachment {number}: {output}");
                    Ok(serde_json::from_str(&output).unwrap_or_default())
                };
                let previous = add(&network(bridge, &options.patch))?;
                if let Some(text) = &options.behind {
                    add(&behind(text, bridge, number, &previous)?)?;
                }
            }
        };
        let threads: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
    })?;
    println!("filled {from} to {to} in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn measure(options: &Options, count: usize) -> Result<Vec<Value>> {
    const VERBS: [&str; 4] = ["ADD", "CHECK", "DEL", "GC"];
    let base = network(0, &options.patch);
    let mut valid: Vec<Value> = (0..count.min(PER_BRIDGE))
        .map(filler)
        .map(|(container, _, ifname)| json!({"containerID": container, "ifname": ifname}))
        .collect();
    valid.push(json!({"containerID": "probe", "ifname": "eth0"}));
    let mut collection = match &options.behind {
        Some(text) => behind(text, 0, PROBE, &Value::Null)?,
        None => base.clone(),
    };
    merge(&mut collection, &json!({"cni.dev/valid-attachments": valid}));
    let mut floors: [Vec<Sample>; 2] = Default::default();
    let mut samples: Vec<[Vec<Sample>; 4]> = options.sides.iter().map(|_| Default::default()).collect();
    let is_on = |key: &str| base.get(key) == Some(&json!(true));
    // The floor's rules are those of nftables. With iptables it has none.
    let in_nftables = base.get("ipMasqBackend") == Some(&json!("nftables"));
    let word = |key: &str| Some(collection.get(key)?.as_str()?.to_owned());
    let of_behind =
        options.behind.as_ref().map(|_| (word("type").unwrap_or_default(), word("backend").unwrap_or_default()));
    let features =
        floor::Features { masquerade: is_on("ipMasq") && in_nftables, guard: is_on("macspoofchk"), behind: of_behind };
    for run in 0..WARM_UP + options.runs {
        let floor = floor::measure(&features)?;
        if run >= WARM_UP {
            floors.iter_mut().zip(floor).for_each(|(all, sample)| all.push(sample));
        }
        for turn in 0..options.sides.len() {
            let index = (turn + run) % options.sides.len();
            let (Some(side), Some(all)) = (options.sides.get(index), samples.get_mut(index)) else { continue };
            let mut previous = Value::Null;
            let mut config = base.clone();
            if let Some(text) = &options.behind {
                let (_, output, succeeded) = call(&side.bin, "ADD", "probe", "probe", "eth0", &base)?;
                ensure!(succeeded, "{}: {output}", side.label);
                config = behind(text, 0, PROBE, &serde_json::from_str(&output)?)?;
            }
            for (verb, all) in VERBS.iter().zip(all) {
                let mut given = if *verb == "GC" { collection.clone() } else { config.clone() };
                if previous.is_object() && *verb != "GC" {
                    merge(&mut given, &json!({"prevResult": previous}));
                }
                std::thread::sleep(REST);
                let (sample, output, succeeded) = call(&side.bin, verb, "probe", "probe", "eth0", &given)?;
                if !succeeded {
                    println!(
                        "    {} {verb} failed: {}",
                        side.label,
                        output.split_whitespace().collect::<Vec<_>>().join(" ")
                    );
                    call(&side.bin, "DEL", "probe", "probe", "eth0", &given)?;
                }
                if *verb == "ADD" {
                    previous = serde_json::from_str(&output).unwrap_or_default();
                }
                if run >= WARM_UP && succeeded {
                    all.push(sample);
                }
            }
            if options.behind.is_some() {
                call(&side.bin, "DEL", "probe", "probe", "eth0", &base)?;
            }
        }
    }
    let mut rows = Vec::new();
    let [add, del] = &floors;
    for (verb, floor) in [("ADD", add), ("DEL", del)] {
        rows.push(row("floor", count, verb, floor, None));
    }
    for (side, samples) in options.sides.iter().zip(&samples) {
        for (verb, samples) in VERBS.iter().zip(samples) {
            let floor = match *verb {
                "ADD" => Some(add),
                "DEL" => Some(del),
                _ => None,
            };
            rows.push(row(&side.label, count, verb, samples, floor));
        }
    }
    Ok(rows)
}

fn row(label: &str, count: usize, verb: &str, samples: &[Sample], floor: Option<&Vec<Sample>>) -> Value {
    let wall = |samples: &[Sample], percent| part(samples.iter().map(|sample| sample.wall).collect(), percent);
    let cpu = |samples: &[Sample]| part(samples.iter().map(|sample| sample.cpu).collect(), 50);
    let beyond = floor.map(|floor| (wall(samples, 50) - wall(floor, 50), cpu(samples) - cpu(floor)));
    let text = beyond.map(|(wall, cpu)| format!("{wall:>10.2}{cpu:>9.2}")).unwrap_or_default();
    println!(
        "{label:<12}{count:>7} {verb:<7}{:>11.2}{:>9.2}{:>9.2}{text}",
        wall(samples, 50),
        wall(samples, 25),
        cpu(samples)
    );
    json!({
        "name": label, "count": count, "verb": verb, "median_ms": wall(samples, 50), "quarter_ms": wall(samples, 25),
        "cpu_ms": cpu(samples), "beyond_ms": beyond.map(|(wall, _)| wall), "beyond_cpu_ms": beyond.map(|(_, cpu)| cpu),
    })
}

/// Returns a percentile of the microseconds, in ms.
#[allow(clippy::cast_precision_loss, reason = "microseconds of one call")]
fn part(mut micros: Vec<u64>, percent: usize) -> f64 {
    micros.sort_unstable();
    micros.get((micros.len().saturating_sub(1) * percent) / 100).map_or(f64::NAN, |micros| *micros as f64 / 1000.0)
}

/// Makes one call. Returns its time, its output and its success.
fn call(
    bin: &Path,
    verb: &str,
    container: &str,
    netns: &str,
    ifname: &str,
    config: &Value,
) -> Result<(Sample, String, bool)> {
    let plugin = config.get("type").and_then(Value::as_str).unwrap_or_default();
    let mut command = Command::new(bin.join(plugin));
    command.env("CNI_COMMAND", verb).env("CNI_PATH", bin);
    if verb != "GC" {
        command
            .env("CNI_CONTAINERID", container)
            .env("CNI_NETNS", format!("/run/netns/{netns}"))
            .env("CNI_IFNAME", ifname);
    }
    timed(&mut command, &config.to_string())
}

/// Starts a program, gives it its input, and waits for its end.
fn timed(command: &mut Command, input: &str) -> Result<(Sample, String, bool)> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let cpu_before = children_cpu()?;
    let start = Instant::now();
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(input.as_bytes());
    }
    let mut stdout = String::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_string(&mut stdout)?;
    }
    let status = child.wait()?;
    let wall = u64::try_from(start.elapsed().as_micros())?;
    Ok((Sample { wall, cpu: children_cpu()?.saturating_sub(cpu_before) }, stdout, status.success()))
}

/// Returns the CPU time of all children waited for so far, with their children, in µs.
fn children_cpu() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok(u64::try_from(usage.user_time().num_microseconds() + usage.system_time().num_microseconds())?)
}
