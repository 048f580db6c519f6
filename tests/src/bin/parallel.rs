//! A benchmark of many calls at once: 1, 10, 100 and 200 ADDs that begin together, then as many DELs. Ours and the
//! native plugins take turns in the same run. It measures the wall time until the last is done, and the time of each
//! call.
//!
//! `postern-bench-parallel [--rounds N] [--json FILE] [PATTERN...]`, under `tests/in-namespaces`. Trust the ratio.

#![allow(clippy::print_stdout, reason = "its output is a table")]

use anyhow::{Context, Result, anyhow, bail, ensure};
use postern_tests::{kernel, merge, native_bin, plugin_bin};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The numbers of calls at once.
const COUNTS: [usize; 4] = [1, 10, 100, 200];
/// The same for links without a host end, and for devices.
const COUNTS_OF_LINKS: [usize; 2] = [50, 100];
/// The link that others are stacked on.
const WIRE: &str = "wire0";
/// The number of further tries for a DEL that fails, so that the next round begins with nothing. A native DEL with
/// `ipMasq` may fail the first time.
const RETRIES: usize = 5;

/// The network to attach to: each side has its own bridge. All others share one link, or have a device each.
struct Scenario {
    name: &'static str,
    plugin: &'static str,
    patch: Value,
    counts: &'static [usize],
}

impl Scenario {
    /// Returns the configuration of one of a side's containers.
    fn config(&self, side: usize, number: usize) -> Value {
        let mut config = json!({
            "cniVersion": "1.0.0", "name": format!("many{side}"), "type": self.plugin,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": format!("10.{}.0.0/16", 50 + side)}]]},
        });
        let own = match self.plugin {
            "bridge" => json!({"bridge": format!("many{side}"), "isGateway": true}),
            "vlan" => json!({"vlanId": 1 + number}),
            "host-device" => json!({"device": format!("card{number}")}),
            _ => json!({}),
        };
        merge(&mut config, &own);
        merge(&mut config, &self.patch);
        config
    }
}

/// All calls of one verb in one round.
#[derive(Default)]
struct Batch {
    wall: Duration,
    single: Vec<Duration>,
    errors: usize,
    /// The message of the first one that failed.
    printed: String,
    /// The output of each.
    results: Vec<Value>,
}

/// The rounds of one side and one verb.
#[derive(Default)]
struct Column {
    walls: Vec<Duration>,
    single: Vec<Duration>,
    errors: usize,
    printed: String,
}

impl Column {
    fn take(&mut self, batch: Batch) {
        self.walls.push(batch.wall);
        self.single.extend(batch.single);
        self.errors += batch.errors;
        if self.printed.is_empty() {
            self.printed = batch.printed;
        }
    }

    /// Returns the median of the rounds, and the median and 95th percentile of single calls, in ms.
    fn figures(&self) -> [f64; 3] {
        [part(&self.walls, 50), part(&self.single, 50), part(&self.single, 95)]
    }
}

fn part(times: &[Duration], percent: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get((times.len().saturating_sub(1) * percent) / 100).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}

fn main() -> Result<()> {
    let (mut rounds, mut file, mut patterns) = (3, None, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--rounds" => rounds = arguments.next().context("--rounds needs a number")?.parse()?,
            "--json" => file = Some(arguments.next().context("--json needs a file")?),
            flag if flag.starts_with('-') => {
                bail!("unknown option {flag}; usage: postern-bench-parallel [--rounds N] [--json FILE] [PATTERN...]")
            }
            pattern => patterns.push(pattern.to_owned()),
        }
    }
    ensure!(
        std::env::var_os("POSTERN_PRIVATE").is_some(),
        "not in private namespaces: start it with tests/in-namespaces"
    );
    ensure!(rounds > 0, "--rounds needs a positive number");
    let most = COUNTS.into_iter().max().unwrap_or_default();
    for number in 0..most {
        let status = Command::new("ip").args(["netns", "add", &format!("many{number}")]).status()?;
        ensure!(status.success(), "ip netns add many{number}");
    }
    let cards = COUNTS_OF_LINKS.into_iter().max().unwrap_or_default();
    let script = format!(
        "ip link add {WIRE} type veth peer name wire1; ip link set {WIRE} up; ip link set wire1 up
         for n in $(seq 0 {}); do ip link add card$n type veth peer name socket$n; done",
        cards.saturating_sub(1)
    );
    ensure!(Command::new("sh").args(["-ec", &script]).status()?.success(), "no {WIRE} and no cards");
    let bins = [native_bin()?, plugin_bin()?];
    let cores = std::thread::available_parallelism()?;
    println!("{rounds} rounds, taking turns, on {cores} cores: until all are done, and the single call, ms");
    println!(
        "{:<22}{:>5} {:<4}{:>11}{:>9}{:>9}{:>5}{:>12}{:>9}{:>9}{:>5}{:>8}{:>8}",
        "", "", "", "native all", "median", "p95", "err", "ours all", "median", "p95", "err", "all", "median"
    );
    let mut rows = Vec::new();
    let bridge = |name, patch| Scenario { name, plugin: "bridge", patch, counts: &COUNTS };
    let link = |name, plugin, patch| Scenario { name, plugin, patch, counts: &COUNTS_OF_LINKS };
    for scenario in [
        bridge("bridge + host-local", json!({})),
        bridge("bridge + masq nft", json!({"ipMasq": true, "ipMasqBackend": "nftables"})),
        link("macvlan + host-local", "macvlan", json!({"master": WIRE})),
        link("vlan + host-local", "vlan", json!({"master": WIRE})),
        link("ipvlan + host-local", "ipvlan", json!({"master": WIRE, "mode": "l3"})),
        link("dummy + host-local", "dummy", json!({})),
        link("host-device + host-local", "host-device", json!({})),
    ]
    .iter()
    .filter(|scenario| patterns.is_empty() || patterns.iter().any(|pattern| scenario.name.contains(pattern.as_str())))
    {
        if ["vlan", "ipvlan", "dummy"].contains(&scenario.plugin) && !kernel::has_or_says(scenario.plugin)? {
            continue;
        }
        for count in scenario.counts {
            rows.extend(measure(scenario, &bins, *count, rounds)?);
        }
    }
    if let Some(file) = file {
        std::fs::write(&file, serde_json::to_string_pretty(&rows)?).with_context(|| file.clone())?;
    }
    Ok(())
}

fn measure(scenario: &Scenario, bins: &[PathBuf; 2], count: usize, rounds: usize) -> Result<Vec<Value>> {
    let mut columns: [[Column; 2]; 2] = Default::default();
    // The first round warms up.
    for round in 0..=rounds {
        for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let Some(bin) = bins.get(side) else { continue };
            let configs: Vec<Value> = (0..count).map(|number| scenario.config(side, number)).collect();
            let added = all_at_once(bin, "ADD", &configs)?;
            if added.errors == 0 {
                verify(&added.results)?;
            }
            let previous: Vec<Value> = added
                .results
                .iter()
                .zip(&configs)
                .map(|(result, config)| {
                    let mut config = config.clone();
                    if result.is_object() {
                        merge(&mut config, &json!({"prevResult": result}));
                    }
                    config
                })
                .collect();
            let deleted = all_at_once(bin, "DEL", &previous)?;
            for _ in 0..if deleted.errors > 0 { RETRIES } else { 0 } {
                if all_at_once(bin, "DEL", &previous)?.errors == 0 {
                    break;
                }
            }
            for (verb, batch) in columns.iter_mut().zip([added, deleted]) {
                if let (true, Some(column)) = (round > 0, verb.get_mut(side)) {
                    column.take(batch);
                }
            }
        }
    }
    let mut rows = Vec::new();
    for ([native, ours], verb) in columns.iter().zip(["ADD", "DEL"]) {
        let ([a, b, c], [d, e, f]) = (native.figures(), ours.figures());
        println!(
            "{:<22}{count:>5} {verb:<4}{a:>11.1}{b:>9.1}{c:>9.1}{:>5}{d:>12.1}{e:>9.1}{f:>9.1}{:>5}{:>8.2}{:>8.2}",
            scenario.name,
            native.errors,
            ours.errors,
            d / a,
            e / b
        );
        for (side, column) in [("native", native), ("ours", ours)] {
            if column.errors > 0 {
                let text: String =
                    column.printed.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(150).collect();
                println!("    {side} failed {} of {} times: {text}", column.errors, count * rounds);
            }
        }
        rows.push(json!({
            "name": scenario.name, "count": count, "verb": verb, "rounds": rounds,
            "native": {"all_ms": a, "median_ms": b, "p95_ms": c, "errors": native.errors},
            "ours": {"all_ms": d, "median_ms": e, "p95_ms": f, "errors": ours.errors},
        }));
    }
    Ok(rows)
}

/// Fails unless each container has the address of its result, and no two have the same.
fn verify(results: &[Value]) -> Result<()> {
    let mut all = BTreeSet::new();
    for (number, result) in results.iter().enumerate() {
        let address = result.pointer("/ips/0/address").and_then(Value::as_str).unwrap_or_default();
        let space = format!("many{number}");
        let shown = Command::new("ip").args(["-n", &space, "-o", "address", "show", "dev", "eth0"]).output()?;
        ensure!(String::from_utf8(shown.stdout)?.contains(address), "{space} does not have {address}: {result}");
        ensure!(!address.is_empty() && all.insert(address), "{address} was given out twice");
    }
    Ok(())
}

/// Runs one verb for as many containers as there are configurations, all started together.
fn all_at_once(bin: &Path, verb: &str, configs: &[Value]) -> Result<Batch> {
    let barrier = Barrier::new(configs.len() + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = configs
            .iter()
            .enumerate()
            .map(|(number, config)| {
                let barrier = &barrier;
                std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, move || {
                    barrier.wait();
                    call(bin, verb, number, config)
                })
            })
            .collect::<Result<_, _>>()?;
        barrier.wait();
        let start = Instant::now();
        let mut batch = Batch::default();
        for thread in threads {
            let (took, succeeded, stdout) = thread.join().map_err(|_| anyhow!("a thread panicked"))??;
            batch.single.push(took);
            batch.results.push(serde_json::from_str(&stdout).unwrap_or_default());
            if !succeeded {
                batch.errors += 1;
                batch.printed = stdout;
            }
        }
        batch.wall = start.elapsed();
        Ok(batch)
    })
}

/// Makes one call. Returns its time, its success and its output.
fn call(bin: &Path, verb: &str, number: usize, config: &Value) -> Result<(Duration, bool, String)> {
    let start = Instant::now();
    let plugin = config.get("type").and_then(Value::as_str).context("no type")?;
    let mut child = Command::new(bin.join(plugin))
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", format!("many{number}"))
        .env("CNI_NETNS", format!("/run/netns/many{number}"))
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", bin)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| bin.display().to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(config.to_string().as_bytes());
    }
    let mut stdout = String::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_string(&mut stdout)?;
    }
    let status = child.wait()?;
    Ok((start.elapsed(), status.success(), stdout))
}
