//! Measures whole lists with a process for each plugin: the native plugins by cnitool, ours by `postern net`, and the
//! floor. For one list, netavark does the same work.

use crate::netavark::Netavark;
use crate::rounds::REST;
use crate::{Options, PluginSet, Sets, WARM_UP, floors};
use anyhow::{Result, ensure};
use postern_tests::floor::is_built;
use postern_tests::measure::{Measured, timed_with_errors};
use postern_tests::report::{FLOOR, NATIVE, NETAVARK, OURS, Row};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The first node port of the lists' port mappings. Each side and list has its own port.
const PORT: u16 = 8090;
/// The verbs of one round.
const VERBS: [&str; 3] = ["add", "check", "del"];

/// A list of plugins.
struct List {
    name: &'static str,
    /// A number in the list's addresses and names.
    number: usize,
    plugins: Vec<Value>,
    /// The parts of the floor for each plugin.
    floor: Option<&'static [&'static str]>,
    /// True if netavark does the same work.
    is_netavarks: bool,
}

/// Runs one verb. Returns its measurement and error output, or `None` if the side lacks the verb.
type Call<'a> = dyn Fn(&str) -> Result<Option<(Measured, String)>> + 'a;

/// A side, and its way to run a verb.
struct Way<'a> {
    side: &'static str,
    call: Box<Call<'a>>,
}

/// Returns the lists: Kubernetes' list, the same list with Podman's plugins, and a list that does netavark's work.
fn lists() -> [List; 3] {
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
    // firewall has no nftables backend. netavark accepts forwarded packets in nftables.
    let netavarks = vec![
        json!({
            "type": "bridge", "bridge": "chainSUBNET", "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables",
            "ipam": {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]},
        }),
        json!({"type": "portmap", "backend": "nftables", "snat": true, "capabilities": {"portMappings": true}}),
        json!({"type": "firewall"}),
    ];
    let floor: &[&str] = &["lease+bridge+route+masquerade-iptables", "portmap", "bandwidth"];
    let floor_of_netavarks: &[&str] = &["lease+bridge+route+masquerade", "portmap-nftables", "firewall"];
    let list = |name, number, plugins, floor| List { name, number, plugins, floor, is_netavarks: false };
    [
        list("chain of 3", 3, kubernetes, Some(floor)),
        list("chain of 5", 5, all, None),
        List { is_netavarks: true, ..list("list with a port", 6, netavarks, Some(floor_of_netavarks)) },
    ]
}

/// Measures the lists that the options name.
pub fn measure(sets: &Sets, netavark: Option<&Netavark>, floor: &str, options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for list in lists() {
        if options.wants(list.name) {
            let netavark = netavark.filter(|_| list.is_netavarks);
            rows.extend(measure_one(&list, sets, netavark, floor, options.runs)?);
        }
    }
    Ok(rows)
}

fn measure_one(
    list: &List,
    [native, ours]: &Sets,
    netavark: Option<&Netavark>,
    floor: &str,
    runs: usize,
) -> Result<Vec<Row>> {
    let cnitool = PathBuf::from(std::env::var_os("POSTERN_CNITOOL").unwrap_or_else(|| "target/cnitool".into()));
    let cnitool = cnitool.join("cnitool");
    if !cnitool.is_file() {
        println!("SKIPPED: {}: no cnitool to compare with: tests/fetch-cnitool fetches it", list.name);
        return Ok(Vec::new());
    }
    // cnitool lies in the plugins' directory, as `postern` does.
    let copied = native.bin.join("cnitool");
    fs::copy(&cnitool, &copied)?;
    let mut ways = vec![
        runtime(NATIVE, copied.clone(), &[], native, list)?,
        runtime(OURS, ours.bin.join("postern"), &["net"], ours, list)?,
    ];
    if let Some(parts) = list.floor.filter(|_| is_built()) {
        ways.push(of_floor(parts, floor));
    }
    if let Some(netavark) = netavark {
        match of_netavark(netavark, list) {
            Ok(way) => ways.push(way),
            Err(error) => println!("SKIPPED: the column of netavark: {error:#}"),
        }
    }
    let mut rows = VERBS.map(|verb| Row::new(format!("{}, {}", list.name, verb.to_uppercase())));
    let mut said = BTreeMap::new();
    for run in 0..WARM_UP + runs {
        // Each way is first in the same number of rounds.
        for way in (0..ways.len()).filter_map(|turn| ways.get((turn + run) % ways.len())) {
            std::thread::sleep(REST);
            for (verb, row) in VERBS.into_iter().zip(&mut rows) {
                let Some((made, errors)) = (way.call)(verb)? else { continue };
                if run >= WARM_UP {
                    row.sample(way.side, made.sample);
                }
                if made.succeeded {
                    continue;
                }
                if run >= WARM_UP {
                    *row.failures.entry(way.side.to_owned()).or_default() += 1;
                    said.insert(way.side, errors);
                }
                // With iptables 1.8.9, the first native DEL with `ipMasq` fails.
                if verb == "del" {
                    (way.call)(verb)?;
                }
            }
        }
    }
    for row in &rows {
        crate::print(row);
    }
    for (side, text) in said {
        println!("    {side} failed: {}", crate::short(&text));
    }
    fs::remove_file(copied)?;
    Ok(rows.into())
}

/// Returns the `runtimeConfig` of the lists' `capabilities`.
fn runtime_config(port: u16) -> Value {
    let rate = 8_000_000;
    json!({
        "portMappings": [{"hostPort": port, "containerPort": 80, "protocol": "tcp"}],
        "bandwidth": {"ingressRate": rate, "ingressBurst": rate, "egressRate": rate, "egressBurst": rate},
    })
}

/// Returns the way of a program that runs the list as a runtime does.
fn runtime<'a>(
    side: &'static str,
    program: PathBuf,
    arguments: &'static [&'static str],
    set: &'a PluginSet,
    list: &List,
) -> Result<Way<'a>> {
    // Each side has its own bridge, addresses, port and container.
    let own = 10 * set.number + list.number;
    let network = format!("chain{own}");
    let directory = format!("/run/{network}");
    let text = json!({"cniVersion": "1.0.0", "name": network, "plugins": list.plugins}).to_string();
    fs::create_dir_all(&directory)?;
    fs::write(format!("{directory}/a.conflist"), text.replace("SUBNET", &(100 + own).to_string()))?;
    let netns = container(&network)?;
    let capabilities = runtime_config(PORT + u16::try_from(own)?).to_string();
    let call = move |verb: &str| {
        let mut command = Command::new(&program);
        command.args(arguments).args([verb, &network, &netns]);
        command.env("CNI_PATH", &set.bin).env("NETCONFPATH", &directory).env("CAP_ARGS", &capabilities);
        timed_with_errors(&mut command).map(Some)
    };
    Ok(Way { side, call: Box::new(call) })
}

/// Returns the way of the floor, with a process for each plugin.
fn of_floor<'a>(parts: &'a [&'a str], netns: &'a str) -> Way<'a> {
    let call = |verb: &str| {
        if verb == "check" {
            return Ok(None);
        }
        let sample = floors::list(parts, netns, verb)?;
        Ok(Some((Measured { sample, stdout: String::new(), succeeded: true }, String::new())))
    };
    Way { side: FLOOR, call: Box::new(call) }
}

/// Returns the way of netavark, with the same network as the plugins.
fn of_netavark<'a>(netavark: &'a Netavark, list: &List) -> Result<Way<'a>> {
    // The sides of the plugins use the numbers below 40.
    let own = 40 + list.number;
    let containers = [container(&format!("chain{own}-stays"))?, container(&format!("chain{own}"))?];
    let network = netavark.network(100 + own, containers, PORT + u16::try_from(own)?)?;
    let call = move |verb: &str| {
        Ok(network.call(verb)?.map(|made| {
            let words = made.stdout.clone();
            (made, words)
        }))
    };
    Ok(Way { side: NETAVARK, call: Box::new(call) })
}

/// Makes a container's namespace, and returns its path.
fn container(name: &str) -> Result<String> {
    ensure!(Command::new("ip").args(["netns", "add", name]).status()?.success(), "ip netns add {name}");
    Ok(format!("/run/netns/{name}"))
}
