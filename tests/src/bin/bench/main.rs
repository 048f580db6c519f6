//! A benchmark of each plugin and verb beside its native counterpart: interleaved runs in one private namespace. Wall
//! time is from before the spawn until the process is reaped. CPU time is that of the process and of everything that it
//! waited for.
//!
//! `postern-bench [--runs N] [--json FILE] [PATTERN...]`, under `tests/in-namespaces`. Trust the ratio: both columns
//! saw the same machine at the same time.

#![allow(clippy::print_stdout, reason = "its output is a table")]

mod chain;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use postern_tests::{kernel, merge, native_bin, plugin_bin};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The directories of subnet files, but for the number of the side.
const SUBNETS: &str = "/run/subnets";
/// The link that others are stacked on.
const WIRE: &str = "wire0";

/// The link that is moved into the container.
const DEVICE: &str = "device0";

/// The node's port that leads to the container. Both sides use it, one after the other.
const PORT: u16 = 8080;

/// The number of runs before the first that counts.
const WARM_UP: usize = 3;

/// A plugin, a configuration and the verbs that make one round.
struct Scenario {
    name: &'static str,
    plugin: &'static str,
    config: Value,
    verbs: &'static [&'static str],
    /// The interface plugin in front of it in the list, whose calls are not measured.
    front: Option<Value>,
    /// The same without what is to be measured alone, and the name of that. It runs in the same rounds.
    without: Option<(&'static str, Value)>,
}

/// The microseconds of one call, or of the difference of two.
#[derive(Clone, Copy)]
struct Sample {
    wall: i64,
    cpu: i64,
}

/// One of the two sets of plugins, with its own network on the host.
struct PluginSet {
    bin: PathBuf,
    netns: String,
    number: usize,
}

fn main() -> Result<()> {
    let (mut runs, mut file, mut patterns) = (50, None, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--runs" => runs = arguments.next().context("--runs needs a number")?.parse()?,
            "--json" => file = Some(arguments.next().context("--json needs a file")?),
            flag if flag.starts_with('-') => {
                bail!("unknown option {flag}; usage: postern-bench [--runs N] [--json FILE] [PATTERN...]")
            }
            pattern => patterns.push(pattern.to_owned()),
        }
    }
    ensure!(
        std::env::var_os("POSTERN_PRIVATE").is_some(),
        "not in private namespaces: start it with tests/in-namespaces"
    );
    ensure!(runs > 0, "--runs needs a positive number");
    let made = Command::new("sh")
        .args([
            "-ec",
            &format!(
                "ip link add {WIRE} type veth peer name wire1; ip link set {WIRE} up; ip link set wire1 up; \
                 ip link add {DEVICE} type veth peer name device1; \
                 for n in 1 2; do mkdir -p {SUBNETS}$n; printf 'FLANNEL_NETWORK=10.9.0.0/16\\nFLANNEL_SUBNET=10.%s.0.1/16\\nFLANNEL_MTU=1450\\nFLANNEL_IPMASQ=true\\n' $n > {SUBNETS}$n/subnet.env; done"
            ),
        ])
        .status()?;
    ensure!(made.success(), "there is no link {WIRE} or {DEVICE}");
    let plugin_sets = [plugin_set(native_bin()?, 1)?, plugin_set(plugin_bin()?, 2)?];
    println!(
        "{runs} interleaved runs, ours: {}, native: {}",
        plugin_sets[1].bin.display(),
        plugin_sets[0].bin.display()
    );
    println!("{:<34}{:>30}{:>30}{:>8}{:>22}{:>8}", "", "native wall ms", "ours wall ms", "wall", "CPU ms", "CPU");
    println!(
        "{:<34}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>8}{:>11}{:>11}{:>8}",
        "plugin, verb", "median", "p95", "min", "median", "p95", "min", "ratio", "native", "ours", "ratio"
    );
    let mut rows = Vec::new();
    let mut scenarios = scenarios();
    for kind in ["vlan", "ipvlan", "dummy", "vrf", "tap"] {
        if !kernel::has_or_says(kind)? {
            scenarios.retain(|scenario| scenario.plugin != kind);
        }
    }
    for scenario in scenarios.iter().filter(|scenario| {
        patterns.is_empty() || patterns.iter().any(|pattern| scenario.name.contains(pattern.as_str()))
    }) {
        rows.extend(measure(scenario, &plugin_sets, runs)?);
    }
    let [native, ours] = &plugin_sets;
    rows.extend(chain::measure(native, ours, &patterns, runs)?);
    if let Some(file) = file {
        std::fs::write(&file, serde_json::to_string_pretty(&rows)?).with_context(|| file.clone())?;
    }
    Ok(())
}

fn scenarios() -> Vec<Scenario> {
    let single =
        json!({"type": "host-local", "ranges": [[{"subnet": "10.SIDE.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]});
    let dual = json!({"type": "host-local", "ranges": [[{"subnet": "10.SIDE.0.0/16"}], [{"subnet": "fd00:SIDE::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]});
    let fixed = json!({"type": "static", "addresses": [{"address": "10.SIDE.0.7/16", "gateway": "10.SIDE.0.1"}]});
    let with = |plugin: &str, ipam: &Value, patch: Value| {
        let mut config =
            json!({"cniVersion": "1.0.0", "name": "benchSIDE", "type": plugin, "bridge": "benchSIDE", "ipam": ipam});
        merge(&mut config, &patch);
        config
    };
    const ALL: &[&str] = &["ADD", "CHECK", "DEL"];
    const BOTH: &[&str] = &["ADD", "DEL"];
    let scenario = |name, plugin, config, verbs| Scenario { name, plugin, config, verbs, front: None, without: None };
    // Podman's default chain has both of them behind its bridge.
    let behind = |name, plugin: &'static str, ipam: &Value, patch: Value| Scenario {
        front: Some(with("bridge", ipam, json!({"isGateway": true}))),
        ..scenario(name, plugin, with(plugin, &Value::Null, patch), ALL)
    };
    // The quotient of the whole runs has the bridge in it, on both sides.
    let masquerade_alone = |part, of: Scenario| {
        let mut config = of.config.clone();
        merge(&mut config, &json!({"ipMasq": null}));
        Scenario { without: Some((part, config)), ..of }
    };
    let ports = |backend: Value| {
        json!({
            "bridge": null, "backend": backend, "snat": true,
            "runtimeConfig": {"portMappings": [{"hostPort": PORT, "containerPort": 80, "protocol": "tcp"}]},
        })
    };
    let filter = |patch: Value| {
        let mut config = json!({"bridge": null, "backend": "iptables"});
        merge(&mut config, &patch);
        config
    };
    let limits = json!({
        "bridge": null, "ingressRate": 8_000_000, "ingressBurst": 80_000, "egressRate": 8_000_000, "egressBurst": 80_000,
    });
    let on_wire = |ipam: &Value| with("macvlan", ipam, json!({"master": WIRE, "bridge": null}));
    let of_kind = |kind: &'static str, name, patch: Value| {
        let mut config = with(kind, &single, json!({"master": WIRE, "bridge": null}));
        merge(&mut config, &patch);
        scenario(name, kind, config, ALL)
    };
    vec![
        scenario("bridge VERSION", "bridge", json!({}), &["VERSION"]),
        scenario("loopback", "loopback", with("loopback", &Value::Null, json!({})), ALL),
        scenario("host-local", "host-local", with("bridge", &single, json!({})), ALL),
        scenario("static", "static", with("bridge", &fixed, json!({})), ALL),
        scenario("bridge L2", "bridge", with("bridge", &json!({}), json!({"bridge": "benchl2SIDE"})), BOTH),
        scenario("bridge + host-local", "bridge", with("bridge", &single, json!({"isGateway": true})), ALL),
        scenario("bridge + host-local dual", "bridge", with("bridge", &dual, json!({"isGateway": true})), ALL),
        scenario(
            "bridge + masq nft",
            "bridge",
            with("bridge", &single, json!({"isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables"})),
            ALL,
        ),
        scenario(
            "bridge + masq iptables",
            "bridge",
            with("bridge", &single, json!({"isGateway": true, "ipMasq": true, "ipMasqBackend": "iptables"})),
            ALL,
        ),
        masquerade_alone(
            "… masquerading alone",
            scenario(
                "bridge + masq default",
                "bridge",
                with("bridge", &single, json!({"isGateway": true, "ipMasq": true})),
                ALL,
            ),
        ),
        masquerade_alone(
            "… masquerading alone, dual",
            scenario(
                "bridge + masq default dual",
                "bridge",
                with("bridge", &dual, json!({"isGateway": true, "ipMasq": true})),
                BOTH,
            ),
        ),
        scenario(
            "bridge + macspoofchk",
            "bridge",
            with("bridge", &single, json!({"isGateway": true, "macspoofchk": true})),
            BOTH,
        ),
        scenario("ptp + host-local", "ptp", with("ptp", &single, json!({})), ALL),
        scenario("macvlan L2", "macvlan", on_wire(&json!({})), ALL),
        scenario("macvlan + host-local", "macvlan", on_wire(&single), ALL),
        scenario("macvlan + host-local dual", "macvlan", on_wire(&dual), ALL),
        of_kind("vlan", "vlan + host-local", json!({"vlanId": 5})),
        of_kind("ipvlan", "ipvlan + host-local", json!({"mode": "l3"})),
        of_kind("dummy", "dummy + host-local", json!({"master": null})),
        of_kind("tap", "tap L2", json!({"master": null, "ipam": null})),
        of_kind("tap", "tap + host-local", json!({"master": null})),
        of_kind("tap", "tap of a user + host-local", json!({"master": null, "owner": 0, "group": 0})),
        scenario(
            "host-device L2",
            "host-device",
            with("host-device", &json!({}), json!({"device": DEVICE, "bridge": null})),
            ALL,
        ),
        scenario(
            "host-device + host-local",
            "host-device",
            with("host-device", &single, json!({"device": DEVICE, "bridge": null})),
            ALL,
        ),
        scenario(
            "ptp + masq nft",
            "ptp",
            with("ptp", &single, json!({"ipMasq": true, "ipMasqBackend": "nftables"})),
            BOTH,
        ),
        behind("portmap nft", "portmap", &single, ports(json!("nftables"))),
        behind("portmap nft dual", "portmap", &dual, ports(json!("nftables"))),
        behind("portmap iptables", "portmap", &single, ports(json!("iptables"))),
        behind("portmap iptables dual", "portmap", &dual, ports(json!("iptables"))),
        behind("portmap default", "portmap", &single, ports(Value::Null)),
        behind("firewall iptables", "firewall", &single, filter(json!({}))),
        behind("firewall iptables dual", "firewall", &dual, filter(json!({}))),
        behind("firewall default", "firewall", &single, filter(json!({"backend": null}))),
        behind("bandwidth", "bandwidth", &single, limits),
        behind("firewall same-bridge", "firewall", &single, filter(json!({"ingressPolicy": "same-bridge"}))),
        scenario(
            "flannel",
            "flannel",
            json!({
                "cniVersion": "0.4.0", "name": "benchSIDE", "type": "flannel", "delegate": {"bridge": "benchSIDE"},
                "subnetFile": format!("{SUBNETS}SIDE/subnet.env"), "dataDir": format!("{SUBNETS}SIDE"),
            }),
            BOTH,
        ),
        behind("sbr", "sbr", &single, json!({"bridge": null})),
        behind("sbr dual", "sbr", &dual, json!({"bridge": null})),
        behind("vrf", "vrf", &single, json!({"bridge": null, "vrfname": "benchvrf"})),
        behind("tuning", "tuning", &single, json!({"mtu": 1400, "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}})),
    ]
}

fn plugin_set(bin: PathBuf, number: usize) -> Result<PluginSet> {
    let name = format!("bench{number}");
    let status = Command::new("ip").args(["netns", "add", &name]).status()?;
    ensure!(status.success(), "ip netns add {name}");
    Ok(PluginSet { bin, netns: format!("/run/netns/{name}"), number })
}

/// The calls of one round: the sample of each verb, and the answer if it failed.
fn round(
    scenario: &Scenario,
    config: &Value,
    plugin_set: &PluginSet,
    in_front: &Value,
) -> Result<Vec<(Sample, Option<String>)>> {
    let (mut previous, mut samples) = (in_front.clone(), Vec::new());
    for verb in scenario.verbs {
        let (sample, failure, stdout) = call(scenario.plugin, config, plugin_set, verb, &previous)?;
        if *verb == "ADD" && failure.is_none() {
            previous = serde_json::from_str(&stdout).unwrap_or(Value::Null);
        }
        // A failed DEL left something. With iptables 1.8.9, the native DEL with nftables fails the first time.
        if failure.is_some() && *verb == "DEL" {
            call(scenario.plugin, config, plugin_set, verb, &previous)?;
        }
        samples.push((sample, failure));
    }
    Ok(samples)
}

fn measure(scenario: &Scenario, plugin_sets: &[PluginSet; 2], runs: usize) -> Result<Vec<Value>> {
    // samples[verb][contestant]
    let mut samples = vec![[Vec::new(), Vec::new()]; scenario.verbs.len()];
    let mut alone = samples.clone();
    let mut failures = vec![[(0, String::new()), (0, String::new())]; scenario.verbs.len()];
    for run in 0..WARM_UP + runs {
        // The first of a pair may find colder caches, so the sides take turns.
        for index in if run % 2 == 0 { [0, 1] } else { [1, 0] } {
            let Some(plugin_set) = plugin_sets.get(index) else { continue };
            let mut in_front = Value::Null;
            if let Some(front) = &scenario.front {
                let (_, failure, stdout) = call("bridge", front, plugin_set, "ADD", &Value::Null)?;
                ensure!(failure.is_none(), "the plugin in front: {stdout}");
                in_front = serde_json::from_str(&stdout)?;
            }
            let without = match &scenario.without {
                Some((_, config)) => round(scenario, config, plugin_set, &in_front)?,
                None => Vec::new(),
            };
            let with = round(scenario, &scenario.config, plugin_set, &in_front)?;
            for (verb, (sample, failure)) in with.into_iter().enumerate() {
                let counts = run >= WARM_UP;
                if let (true, Some(slot)) = (counts, samples.get_mut(verb).and_then(|slots| slots.get_mut(index))) {
                    slot.push(sample);
                }
                let slot = alone.get_mut(verb).and_then(|slots| slots.get_mut(index));
                if let (true, Some(slot), Some((less, _))) = (counts, slot, without.get(verb)) {
                    slot.push(Sample { wall: sample.wall - less.wall, cpu: sample.cpu - less.cpu });
                }
                let slot = failures.get_mut(verb).and_then(|slots| slots.get_mut(index));
                if let (Some(failure), Some(failed)) = (failure, slot) {
                    *failed = (failed.0 + 1, failure);
                }
            }
            if let Some(front) = &scenario.front {
                call("bridge", front, plugin_set, "DEL", &in_front)?;
            }
        }
    }
    let mut rows = Vec::new();
    for ((verb, [native, ours]), [native_failure, our_failure]) in scenario.verbs.iter().zip(samples).zip(failures) {
        let name =
            if scenario.verbs.len() == 1 { scenario.name.to_owned() } else { format!("{}, {verb}", scenario.name) };
        rows.push(row(&name, native, ours));
        for (side, failure) in [("native", native_failure), ("ours", our_failure)] {
            let (count, text) = failure;
            if count > 0 {
                let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(150).collect();
                println!("    {side} failed {count} of {} times: {text}", WARM_UP + runs);
            }
        }
    }
    if let Some((part, _)) = scenario.without {
        let alone = scenario.verbs.iter().zip(alone);
        rows.extend(alone.map(|(verb, [native, ours])| row(&format!("{part}, {verb}"), native, ours)));
    }
    Ok(rows)
}

fn call(
    plugin: &str,
    config: &Value,
    plugin_set: &PluginSet,
    verb: &str,
    previous: &Value,
) -> Result<(Sample, Option<String>, String)> {
    let mut config = config.clone();
    if previous.is_object() {
        merge(&mut config, &json!({"prevResult": previous}));
    }
    let config = config.to_string().replace("SIDE", &plugin_set.number.to_string());
    let program: &Path = &plugin_set.bin.join(plugin);
    let mut command = Command::new(program);
    command
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", format!("container{}", plugin_set.number))
        .env("CNI_NETNS", &plugin_set.netns)
        .env("CNI_IFNAME", if plugin == "loopback" { "lo" } else { "eth0" })
        .env("CNI_PATH", &plugin_set.bin)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let cpu_before = children_cpu()?;
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| program.display().to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(config.as_bytes());
    }
    let mut stdout = String::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_string(&mut stdout)?;
    }
    let status = child.wait()?;
    let wall = i64::try_from(start.elapsed().as_micros())?;
    let sample = Sample { wall, cpu: children_cpu()? - cpu_before };
    Ok((sample, (!status.success()).then(|| stdout.clone()), stdout))
}

/// Returns the CPU time of all children waited for so far, with their children, in µs.
fn children_cpu() -> Result<i64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok(usage.user_time().num_microseconds() + usage.system_time().num_microseconds())
}

fn row(name: &str, native: Vec<Sample>, ours: Vec<Sample>) -> Value {
    let wall = |samples: &[Sample]| Statistics::of(samples.iter().map(|sample| sample.wall).collect());
    let cpu = |samples: &[Sample]| Statistics::of(samples.iter().map(|sample| sample.cpu).collect());
    let (native_wall, our_wall, native_cpu, our_cpu) = (wall(&native), wall(&ours), cpu(&native), cpu(&ours));
    println!(
        "{name:<34}{:>10.2}{:>10.2}{:>10.2}{:>10.2}{:>10.2}{:>10.2}{:>8.2}{:>11.2}{:>11.2}{:>8.2}",
        native_wall.median,
        native_wall.p95,
        native_wall.minimum,
        our_wall.median,
        our_wall.p95,
        our_wall.minimum,
        our_wall.median / native_wall.median,
        native_cpu.median,
        our_cpu.median,
        our_cpu.median / native_cpu.median
    );
    json!({
        "name": name, "runs": native.len(),
        "native": {"median_ms": native_wall.median, "p95_ms": native_wall.p95, "min_ms": native_wall.minimum, "cpu_ms": native_cpu.median},
        "ours": {"median_ms": our_wall.median, "p95_ms": our_wall.p95, "min_ms": our_wall.minimum, "cpu_ms": our_cpu.median},
        "ratio": our_wall.median / native_wall.median, "cpu_ratio": our_cpu.median / native_cpu.median,
    })
}

/// The figures of one column, in ms.
struct Statistics {
    minimum: f64,
    median: f64,
    p95: f64,
}

impl Statistics {
    fn of(mut micros: Vec<i64>) -> Self {
        micros.sort_unstable();
        #[allow(clippy::cast_precision_loss, reason = "microseconds of one call")]
        let at = |part: usize| {
            micros.get((micros.len().saturating_sub(1) * part) / 100).map_or(f64::NAN, |micros| *micros as f64 / 1000.0)
        };
        Self { minimum: at(0), median: at(50), p95: at(95) }
    }
}
