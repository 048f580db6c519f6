//! Random changes of valid calls. For any input the answer is well-formed, and DEL restores the node.

use crate::bad_input::{base, request, send};
use anyhow::{Result, ensure};
use postern_tests::proof::{Refusal, Watched};
use postern_tests::{Call, Random, Vocabulary, damage, merge};
use serde_json::json;

/// The number of runs. Each run has an ADD and further verbs. `POSTERN_FUZZ_RUNS` sets another number.
const RUNS: u64 = 300;

/// The vocabulary of random JSON.
const WORDS: Vocabulary<'_> = Vocabulary { keys: &KEYS, texts: &TEXTS };

/// Keys of all plugins. Each plugin may get any of them.
const KEYS: [&str; 38] = [
    "dataDir",
    "resolvConf",
    "cniVersion",
    "name",
    "type",
    "bridge",
    "isGateway",
    "isDefaultGateway",
    "forceAddress",
    "ipMasq",
    "ipMasqBackend",
    "mtu",
    "hairpinMode",
    "promiscMode",
    "vlan",
    "vlanTrunk",
    "preserveDefaultVlan",
    "portIsolation",
    "macspoofchk",
    "enabledad",
    "disableContainerInterface",
    "dns",
    "ipam",
    "ranges",
    "routes",
    "dst",
    "gw",
    "subnet",
    "rangeStart",
    "rangeEnd",
    "gateway",
    "addresses",
    "address",
    "prevResult",
    "capabilities",
    "runtimeConfig",
    "args",
    "ips",
];

/// Texts that have caused a failure in some program. No text is a path that could exist.
const TEXTS: [&str; 24] = [
    "",
    "x",
    "..",
    "a/b",
    "../x",
    "a b",
    "a\n",
    "\0",
    "\u{1b}[2J",
    "é",
    "${config.name}",
    "br9",
    "br8",
    "host-local",
    "static",
    "nftables",
    "10.9.0.5",
    "10.9.0.0/24",
    "fd00::/64",
    "0.0.0.0/0",
    "1.1.0",
    "0.2.0",
    "02:00:00:00:00:01",
    "true",
];

/// Makes a node with all node objects that a plugin may leave, so that every other change is noticed.
fn node() -> Result<Watched> {
    let mut watched = Watched::new(&["c1"])?;
    let gateway = json!({"isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true, "ipam": {"ranges": [[{"subnet": "fd00:9::/64"}], [{"subnet": "10.9.0.0/24"}]]}});
    for (plugin, backend) in [("bridge", "nftables"), ("bridge", "iptables"), ("ptp", "nftables"), ("loopback", "")] {
        let mut config = base(plugin);
        merge(&mut config, &gateway);
        merge(&mut config, &json!({"ipMasqBackend": backend}));
        for verb in ["ADD", "DEL"] {
            send(&watched, plugin, verb, config.to_string())?.success()?;
        }
    }
    tidy(&watched)?;
    watched.look()?;
    Ok(watched)
}

/// Removes node objects whose names a configuration chose: bridges, and directories without a lease.
fn tidy(watched: &Watched) -> Result<()> {
    let leases = watched
        .node
        .sh("if [ -d /var/lib/cni ]; then find /var/lib/cni -type f ! -name lock ! -name 'last_reserved*'; fi")?;
    ensure!(leases.is_empty(), "leases are left: {leases}");
    watched.node.sh("for link in $(ip -o link show type bridge | cut -d: -f2); do ip link del \"$link\"; done; rm -rf /var/lib/cni").map(drop)
}

/// Returns a random call, without its verb.
fn random_call(random: &mut Random, watched: &Watched) -> Result<Call> {
    let plugin = random.one_of(&["bridge", "bridge", "ptp", "host-local", "static", "loopback"]);
    let mut config = base(plugin);
    if random.index(2) == 0 {
        merge(
            &mut config,
            &json!({"isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true}),
        );
    }
    for _ in 0..random.index(3) {
        WORDS.change(random, &mut config);
    }
    let mut stdin = config.to_string().into_bytes();
    if random.index(4) == 0 {
        damage(random, &mut stdin);
    }
    let call = request(watched, plugin, "ADD", stdin)?;
    if random.index(4) > 0 {
        return Ok(call);
    }
    let key = random.one_of(&["CNI_CONTAINERID", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH", "CNI_NETNS"]);
    // An environment variable can't contain a zero byte.
    Ok(call.env(key, &random.one_of(&TEXTS).replace('\0', "")))
}

/// Runs ADD, CHECK and DEL of a call. Returns true if ADD succeeded.
fn run(watched: &mut Watched, call: &Call) -> Result<bool> {
    let mut added = false;
    for verb in ["ADD", "CHECK", "DEL"] {
        let answer = watched.node.call(&call.clone().env("CNI_COMMAND", verb))?;
        if answer.status != 0 {
            Refusal::of(&answer)?;
        } else if verb == "ADD" {
            ensure!(answer.success()?.is_object(), "no result: {answer:?}");
            added = true;
        } else {
            ensure!(answer.stdout.is_empty(), "{verb} prints: {answer:?}");
        }
    }
    tidy(watched)?;
    watched.unchanged()?;
    Ok(added)
}

#[test]
fn random_calls_are_answered_and_leave_nothing() -> Result<()> {
    let number = |name: &str, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (seed, runs) = (number("POSTERN_FUZZ_SEED", 0x0070_6f73_7465_726e), number("POSTERN_FUZZ_RUNS", RUNS));
    println!("POSTERN_FUZZ_SEED={seed} POSTERN_FUZZ_RUNS={runs}");
    let mut watched = node()?;
    let mut random = Random::new(seed);
    let (mut added, mut failures) = (0, Vec::new());
    for number in 0..runs {
        let call = random_call(&mut random, &watched)?;
        match run(&mut watched, &call) {
            Ok(success) => added += u64::from(success),
            Err(error) => {
                let (program, stdin) = (call.program().display(), String::from_utf8_lossy(call.stdin()));
                failures.push(format!("run {number}: {program} {:?} {stdin}: {error:#}", call.environment()));
                watched = node()?;
            }
        }
        if failures.len() > 9 {
            break;
        }
    }
    ensure!(failures.is_empty(), "seed {seed}:\n{}", failures.join("\n"));
    ensure!(
        added > runs / 10 && added < runs * 9 / 10,
        "{added} of {runs} ADDs succeeded: too few or too many for this test"
    );
    Ok(())
}
