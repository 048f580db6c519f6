//! Measures many calls at once: 1 to 200 ADDs that begin together, then the same number of DELs. The native plugins,
//! our plugins and the floor take turns. The wall time ends with the last call; the CPU time is the sum.

use crate::rounds::{REST, SIDES};
use crate::{Options, PluginSet, Sets};
use anyhow::{Context, Result, anyhow, ensure};
use postern_tests::floor::{Task, is_built};
use postern_tests::measure::{Sample, children};
use postern_tests::report::{FLOOR, Row};
use postern_tests::{kernel, merge};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::Instant;

/// The numbers of calls at once.
const COUNTS: [usize; 5] = [1, 10, 50, 100, 200];
/// The numbers of calls at once for links without a host end, and for devices.
const COUNTS_OF_LINKS: [usize; 2] = [50, 100];
/// The number of rounds with at most `FEW` calls, and with more calls.
const ROUNDS: [usize; 2] = [10, 3];
const FEW: usize = 50;
/// The number of further tries for a DEL that fails, so that the next round begins without attachments. The first
/// native DEL with `ipMasq` may fail.
const RETRIES: usize = 5;

/// A network with one plugin. bridge has its own bridge for each side. The other plugins share one parent link, or have
/// a device for each container.
struct Scenario {
    name: &'static str,
    plugin: &'static str,
    patch: Value,
    counts: &'static [usize],
}

impl Scenario {
    /// Returns the configuration for one container of a side.
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
    sample: Sample,
    errors: usize,
    /// The output of the last call that failed.
    printed: String,
    /// The output of each call.
    results: Vec<Value>,
}

/// Measures the rows that the options name.
pub fn measure(sets: &Sets, options: &Options) -> Result<Vec<Row>> {
    let bridge = |name, patch| Scenario { name, plugin: "bridge", patch, counts: &COUNTS };
    let link = |name, plugin, patch| Scenario { name, plugin, patch, counts: &COUNTS_OF_LINKS };
    let wire = crate::scenarios::WIRE;
    let scenarios = [
        bridge("bridge + host-local", json!({})),
        bridge("bridge + masq nft", json!({"ipMasq": true, "ipMasqBackend": "nftables"})),
        link("macvlan + host-local", "macvlan", json!({"master": wire})),
        link("vlan + host-local", "vlan", json!({"master": wire})),
        link("ipvlan + host-local", "ipvlan", json!({"master": wire, "mode": "l3"})),
        link("dummy + host-local", "dummy", json!({})),
        link("host-device + host-local", "host-device", json!({})),
    ];
    let name = |scenario: &Scenario, count: usize| format!("{count} at once: {}", scenario.name);
    let wanted = |scenario: &&Scenario| scenario.counts.iter().any(|count| options.wants(&name(scenario, *count)));
    if !scenarios.iter().any(|scenario| wanted(&scenario)) {
        return Ok(Vec::new());
    }
    let most = COUNTS.into_iter().max().unwrap_or_default();
    let cards = COUNTS_OF_LINKS.into_iter().max().unwrap_or_default();
    let script = format!(
        "for n in $(seq 0 {}); do ip netns add many$n; done; for n in $(seq 0 {}); do ip link add card$n type veth peer name socket$n; done
         ip link add many3 type bridge; ip address add 10.53.0.1/16 dev many3; ip link set many3 up",
        most.saturating_sub(1),
        cards.saturating_sub(1)
    );
    ensure!(Command::new("sh").args(["-ec", &script]).status()?.success(), "the containers and cards can't be made");
    println!("many at once, until all are done");
    let mut rows = Vec::new();
    for scenario in scenarios.iter().filter(wanted) {
        if ["vlan", "ipvlan", "dummy"].contains(&scenario.plugin) && !kernel::has_or_skips_part(scenario.plugin)? {
            continue;
        }
        for count in scenario.counts.iter().filter(|count| options.wants(&name(scenario, **count))) {
            rows.extend(measure_one(scenario, sets, *count, &name(scenario, *count))?);
        }
    }
    Ok(rows)
}

fn measure_one(scenario: &Scenario, sets: &Sets, count: usize, name: &str) -> Result<Vec<Row>> {
    let mut rows = ["ADD", "DEL"].map(|verb| Row::new(format!("{name}, {verb}")));
    let mut said = [const { String::new() }; SIDES.len()];
    // The floor exists only for this scenario.
    let has_floor = scenario.name == "bridge + host-local" && is_built();
    let [few, many] = ROUNDS;
    // The first round warms up.
    for round in 0..=if count <= FEW { few } else { many } {
        for turn in 0..=sets.len() {
            let index = (turn + round) % (sets.len() + 1);
            let Some((set, side)) = sets.get(index).zip(SIDES.get(index)) else {
                for (row, verb) in rows.iter_mut().zip(["add", "del"]).filter(|_| has_floor) {
                    std::thread::sleep(REST);
                    let batch = floors("lease+bridge", verb, count)?;
                    ensure!(batch.errors == 0, "the floor of {name}: {}", batch.printed);
                    if round > 0 {
                        row.sample(FLOOR, batch.sample);
                    }
                }
                continue;
            };
            let configs: Vec<Value> = (0..count).map(|number| scenario.config(index, number)).collect();
            let added = all_at_once(&commands(set, "ADD", &configs)?)?;
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
            let deleted = all_at_once(&commands(set, "DEL", &previous)?)?;
            for _ in 0..if deleted.errors > 0 { RETRIES } else { 0 } {
                if all_at_once(&commands(set, "DEL", &previous)?)?.errors == 0 {
                    break;
                }
            }
            for (row, batch) in rows.iter_mut().zip([added, deleted]) {
                if round > 0 {
                    row.sample(side, batch.sample);
                    if batch.errors > 0 {
                        *row.failures.entry((*side).to_owned()).or_default() += batch.errors;
                    }
                }
                if let Some(said) = said.get_mut(index).filter(|_| batch.errors > 0) {
                    *said = batch.printed;
                }
            }
        }
    }
    for row in &rows {
        crate::print(row);
    }
    for (side, text) in SIDES.iter().zip(said).filter(|(_, text)| !text.is_empty()) {
        println!("    {side} failed: {}", crate::short(&text));
    }
    Ok(rows.into())
}

/// Fails if a container lacks the address of its result, or if two containers have the same address.
fn verify(results: &[Value]) -> Result<()> {
    let mut all = BTreeSet::new();
    for (number, result) in results.iter().enumerate() {
        let address = result.pointer("/ips/0/address").and_then(Value::as_str).unwrap_or_default();
        let space = format!("many{number}");
        let shown = Command::new("ip").args(["-n", &space, "-o", "address", "show", "dev", "eth0"]).output()?;
        ensure!(String::from_utf8(shown.stdout)?.contains(address), "{space} does not have {address}: {result}");
        ensure!(!address.is_empty() && all.insert(address), "two containers got {address}");
    }
    Ok(())
}

/// A call: the words of its command, its environment and its input.
struct Call {
    words: Vec<std::ffi::OsString>,
    environment: Vec<(&'static str, String)>,
    input: String,
}

/// Returns the calls of a verb, one for each container.
fn commands(set: &PluginSet, verb: &str, configs: &[Value]) -> Result<Vec<Call>> {
    let call = |(number, config): (usize, &Value)| -> Result<Call> {
        let plugin = config.get("type").and_then(Value::as_str).context("no type")?;
        Ok(Call {
            words: vec![set.bin.join(plugin).into()],
            environment: vec![
                ("CNI_COMMAND", verb.to_owned()),
                ("CNI_CONTAINERID", format!("many{number}")),
                ("CNI_NETNS", format!("/run/netns/many{number}")),
                ("CNI_IFNAME", "eth0".to_owned()),
                ("CNI_PATH", set.bin.display().to_string()),
            ],
            input: config.to_string(),
        })
    };
    configs.iter().enumerate().map(call).collect()
}

/// Runs the floor for `count` containers at once.
fn floors(parts: &str, verb: &str, count: usize) -> Result<Batch> {
    let call = |number: usize| -> Result<Call> {
        let task = Task {
            parts: parts.to_owned(),
            netns: format!("/run/netns/many{number}"),
            bridge: "many3".to_owned(),
            address: format!("10.53.{}.{}/16", 1 + number / 250, 1 + number % 250).parse()?,
            name: format!("f{number}"),
        };
        let command = task.command(verb)?;
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        Ok(Call { words: words.map(Into::into).collect(), environment: Vec::new(), input: String::new() })
    };
    all_at_once(&(0..count).map(call).collect::<Result<Vec<_>>>()?)
}

/// Starts all calls together, and waits for them.
fn all_at_once(calls: &[Call]) -> Result<Batch> {
    let barrier = Barrier::new(calls.len() + 1);
    let before = children()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = calls
            .iter()
            .map(|call| {
                let barrier = &barrier;
                std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, move || {
                    barrier.wait();
                    run(call)
                })
            })
            .collect::<Result<_, _>>()?;
        // The start time is taken before the threads go on. The threads may finish their calls before this thread runs
        // again.
        let start = Instant::now();
        barrier.wait();
        let mut batch = Batch::default();
        for thread in threads {
            let (succeeded, stdout) = thread.join().map_err(|_| anyhow!("a thread panicked"))??;
            batch.results.push(serde_json::from_str(&stdout).unwrap_or_default());
            if !succeeded {
                batch.errors += 1;
                batch.printed = stdout;
            }
        }
        let wall = i64::try_from(start.elapsed().as_micros())?;
        batch.sample = Sample { wall, ..children()?.beyond(before) };
        Ok(batch)
    })
}

/// Makes one call. Returns its success and its output.
fn run(call: &Call) -> Result<(bool, String)> {
    let (program, arguments) = call.words.split_first().context("no program")?;
    let mut child = Command::new(program)
        .args(arguments)
        .envs(call.environment.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| program.to_string_lossy().into_owned())?;
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(call.input.as_bytes());
    }
    let mut stdout = String::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_string(&mut stdout)?;
    }
    Ok((child.wait()?.success(), stdout))
}
