//! A plugin that does everything wrong, run by the real host: each time one well-formed error, and nothing left.

mod common;

use anyhow::{Result, ensure};
use common::{Refusal, Watched, each, test_bin};
use postern_tests::{Answer, Call, merge};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How the plugin ends (`tests/guests/hostile/src/endings.rs`), and the error that comes of it.
const ENDINGS: [(&str, u64, &str); 26] = [
    ("trap", 999, "plugin \"hostile\" trapped: …unreachable"),
    ("panic", 999, "plugin \"hostile\" trapped: …unreachable"),
    ("silent", 999, "plugin \"hostile\" ended without printing a result"),
    ("silent-failure", 999, "plugin \"hostile\" failed with status 1 and printed no error"),
    ("status", 999, "plugin \"hostile\" failed with status 1 and printed no error"),
    ("nonsense", 999, "plugin \"hostile\" printed no CNI result: …everything is fine"),
    (
        "nonsense-failure",
        999,
        "plugin \"hostile\" failed with status 1 and printed no CNI error object: nothing is fine",
    ),
    ("two-objects", 999, "plugin \"hostile\" printed no CNI result: …trailing characters"),
    ("array", 999, "plugin \"hostile\" printed no CNI result: …cannot unmarshal array"),
    ("not-utf8", 999, "plugin \"hostile\" wrote bytes to standard output that are not UTF-8"),
    ("deep", 999, "plugin \"hostile\" printed no CNI result: …recursion limit"),
    ("flood-stdout", 999, "plugin \"hostile\" …wrote too much to standard output"),
    ("flood-stderr", 123, "flooded; as ordered"),
    ("error", 123, "on purpose; as ordered"),
    ("allocate", 999, "plugin \"hostile\" ran out of memory: it may use 64 MiB"),
    ("recurse", 999, "plugin \"hostile\" trapped: "),
    ("hoard", 999, "plugin \"hostile\" trapped: resource table has no free keys"),
    ("claim-interface", 999, "plugin \"hostile\" claims interface \"eth9\", which it neither made nor was given"),
    ("claim-sandbox", 999, "plugin \"hostile\" claims interface \"eth0\", which it neither made nor was given"),
    ("claim-address", 999, "plugin \"hostile\" claims address 10.66.6.6/24, which neither IPAM nor prevResult gave"),
    ("claim-index", 999, "plugin \"hostile\" …127.0.0.1/8"),
    ("claim-version", 999, "plugin \"hostile\" printed no CNI result: …unsupported CNI result version \"9.9.9\""),
    // Refusals that the plugin hands on.
    (
        "capability",
        110,
        "policy does not allow plugin \"hostile\" forwarding.enable; …`[grant.forwarding]` in /etc/postern/policy/hostile.toml",
    ),
    (
        "backend",
        110,
        "policy does not allow plugin \"hostile\" masquerade.ensure on \"iptables\"…backends = [\"iptables\"]",
    ),
    (
        "operations",
        999,
        "plugin \"hostile\" asked for more than 50 operations and was stopped; …[limits] operations in /etc/postern/policy/hostile.toml",
    ),
    ("unknown", 7, "the hostile plugin knows no \"unknown\""),
];

/// What it reaches for (`reaches.rs`), with a change of the configuration.
const REACHES: [(&str, &str, u64, &str); 12] = [
    (
        "bridge",
        "{}",
        110,
        "policy does not allow plugin \"hostile\" bridge.ensure on \"cni0\"; …[grant.bridge] names = [\"cni0\"]",
    ),
    // Only the policy counts, not what the configuration calls the bridge.
    ("bridge", r#"{"bridge": "cni0"}"#, 110, "policy does not allow plugin \"hostile\" bridge.ensure on \"cni0\""),
    ("bridge-path", "{}", 110, "policy does not allow plugin \"hostile\" bridge.find on \"../hostile0\""),
    ("bridge-megabytes", "{}", 999, "plugin \"hostile\" trapped: too much data"),
    (
        "force",
        "{}",
        110,
        "policy does not allow plugin \"hostile\" bridge.ensure-gateways with force; …force-address = \"true\"",
    ),
    (
        "ipam",
        r#"{"ipam": {"type": "static"}}"#,
        110,
        "policy does not allow plugin \"hostile\" ipam.add on \"static\"; …[grant.ipam] types",
    ),
    ("ipam", r#"{"ipam": {"type": "hostile"}}"#, 999, "an IPAM plugin delegates to itself without end"),
    ("ipam", r#"{"ipam": null}"#, 999, "no plugin name provided"),
    (
        "leases",
        r#"{"ipam": {"dataDir": "/var/lib/other"}}"#,
        110,
        "policy does not allow plugin \"hostile\" leases.reserve on \"/var/lib/other\"",
    ),
    (
        "file",
        r#"{"ipam": {"resolvConf": "/etc/shadow"}}"#,
        110,
        "policy does not allow plugin \"hostile\" resolv-conf.read on \"/etc/shadow\"",
    ),
    ("address", "{}", 999, "10.66.6.6/32 is not an address of this attachment"),
    ("source", "{}", 999, "10.66.6.6 is not an address of this attachment"),
];

/// The configuration that orders a behaviour.
fn orders(behaviour: &str, patch: Value) -> Value {
    let mut config = json!({
        "cniVersion": "1.1.0", "name": "net", "type": "hostile", "hostile": behaviour,
        "ipam": {"type": "host-local", "dataDir": "/var/lib/hostile", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
    });
    merge(&mut config, &patch);
    config
}

fn call(watched: &Watched, plugin: &str, verb: &str, config: &Value) -> Result<Answer> {
    let call = Call::new(&test_bin()?, plugin, verb, config.to_string());
    watched.node.call(&call.attachment("c1", &watched.node.netns("c1"), "eth0"))
}

/// An ADD that must fail, and leave nothing.
fn refused(watched: &mut Watched, plugin: &str, config: &Value, code: u64, text: &str) -> Result<()> {
    let answer = call(watched, plugin, "ADD", config)?;
    if let Err(changed) = watched.unchanged() {
        // For the next case.
        call(watched, "hostile", "DEL", &orders("good", json!({})))?.success()?;
        return Err(changed);
    }
    Refusal::of(&answer)?.expect(code, text)
}

/// A node where one attachment came and went, so that node objects (tables, directories) are there already.
fn used_node() -> Result<Watched> {
    let mut watched = Watched::new(&["c1"])?;
    watched.node.sh("ip link add hostile0 type bridge")?;
    let good = orders("good", json!({"make": true}));
    call(&watched, "hostile", "ADD", &good)?.success()?;
    let made = watched.unchanged();
    ensure!(made.is_err(), "the plugin makes nothing: these tests would show nothing");
    // This DEL does nothing itself: the host removes everything by its record.
    call(&watched, "hostile", "DEL", &good)?.success()?;
    watched.look()?;
    watched.unchanged()?;
    Ok(watched)
}

#[test]
fn every_ending_is_one_error_and_leaves_nothing() -> Result<()> {
    let mut watched = used_node()?;
    let cases = ENDINGS.iter().flat_map(|case| [(case, false), (case, true)]);
    each(
        cases,
        |((name, ..), make)| format!("{name}, make {make}"),
        |((name, code, text), make)| {
            refused(&mut watched, "hostile", &orders(name, json!({"make": make})), *code, text)
        },
    )
}

#[test]
fn every_reach_is_refused_and_leaves_nothing() -> Result<()> {
    let mut watched = used_node()?;
    each(
        &REACHES,
        |case| format!("{} {}", case.0, case.1),
        |(name, patch, code, text)| {
            refused(&mut watched, "hostile", &orders(name, serde_json::from_str(patch)?), *code, text)
        },
    )
}

#[test]
fn endless_ones_are_stopped_and_undone() -> Result<()> {
    let mut watched = used_node()?;
    // One that only computes is stopped by its deadline, one that calls by its budget.
    let endings = [
        ("loop", "plugin \"hostile\" ran past its deadline and was stopped"),
        ("call-loop", "plugin \"hostile\" asked for more than 50 operations and was stopped"),
    ];
    let cases = endings.into_iter().flat_map(|(name, text)| [(name, text, false), (name, text, true)]);
    each(
        cases,
        |case| format!("{case:?}"),
        |(name, text, make)| {
            let start = Instant::now();
            refused(&mut watched, "hostile", &orders(name, json!({"make": make})), 999, text)?;
            let took = start.elapsed();
            let least = if *name == "loop" { Duration::from_millis(1900) } else { Duration::ZERO };
            ensure!(took > least && took < Duration::from_secs(10), "took {took:?}");
            Ok(())
        },
    )
}

#[test]
fn a_del_that_fails_still_removes_everything() -> Result<()> {
    let mut watched = used_node()?;
    let add = orders("good", json!({"make": true}));
    let failing = ENDINGS.iter().filter(|(name, ..)| {
        matches!(
            *name,
            "trap" | "silent-failure" | "nonsense-failure" | "not-utf8" | "flood-stdout" | "error" | "allocate"
        )
    });
    let endless = ("loop", 999, "plugin \"hostile\" ran past its deadline");
    each(
        failing.chain([&endless]),
        |case| case.0.to_owned(),
        |(name, code, text)| {
            call(&watched, "hostile", "ADD", &add)?.success()?;
            let answer = call(&watched, "hostile", "DEL", &orders(name, json!({"on": "DEL"})));
            let clean = watched.unchanged();
            // The next case needs a clean node, whatever became of this one.
            call(&watched, "hostile", "DEL", &add)?.success()?;
            // The record is the whole truth, and nothing is left of it: the runtime is told so, and people are told why.
            let answer = answer?;
            ensure!(answer.status == 0 && answer.stdout.is_empty(), "{answer:?}");
            let known = text.split('…').next().unwrap_or_default();
            ensure!(*code != 999 || answer.stderr.contains(known), "not \"{known}\" in {}", answer.stderr);
            ensure!(!answer.stderr.contains('\u{1b}'), "an escape code in {:?}", answer.stderr);
            clean
        },
    )
}

#[test]
fn what_a_del_prints_is_nobodys_business() -> Result<()> {
    let mut watched = used_node()?;
    each(
        ["silent", "nonsense", "two-objects", "array", "claim-address"],
        |name| (*name).to_owned(),
        |name| {
            call(&watched, "hostile", "ADD", &orders("good", json!({"make": true})))?.success()?;
            let answer = call(&watched, "hostile", "DEL", &orders(name, json!({"on": "DEL"})))?;
            ensure!(answer.status == 0 && answer.stdout.is_empty(), "{answer:?}");
            watched.unchanged()
        },
    )
}

#[test]
fn other_verbs_fail_as_well_formed() -> Result<()> {
    let mut watched = used_node()?;
    let previous = json!({"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.2/24"}]});
    each(
        ["CHECK", "STATUS", "GC"],
        |verb| (*verb).to_owned(),
        |verb| {
            for (behaviour, text) in [("trap", "trapped"), ("nonsense-failure", "no CNI error object")] {
                let config =
                    orders(behaviour, json!({"on": verb, "prevResult": previous, "cni.dev/valid-attachments": []}));
                let answer = call(&watched, "hostile", verb, &config)?;
                Refusal::of(&answer)?.expect(999, &format!("plugin \"hostile\"…{text}"))?;
                watched.unchanged()?;
            }
            Ok(())
        },
    )
}

#[test]
fn an_ipam_delegate_is_no_better_trusted() -> Result<()> {
    let mut watched = used_node()?;
    let config = |behaviour| orders(behaviour, json!({"type": "bridge", "bridge": "br9", "ipam": {"type": "hostile"}}));
    // The bridge is a node object, and stays.
    call(&watched, "bridge", "ADD", &config("error"))?;
    watched.look()?;
    let named = |name: &str| !matches!(name, "flood-stderr" | "error" | "claim-address" | "unknown");
    each(
        ENDINGS.iter().filter(|(name, code, _)| named(name) && *code == 999),
        |case| case.0.to_owned(),
        |(name, code, text)| refused(&mut watched, "bridge", &config(name), *code, text),
    )
}

#[test]
fn standard_error_is_marked_bounded_and_harmless() -> Result<()> {
    let watched = Watched::new(&["c1"])?;
    let answer = call(&watched, "hostile", "ADD", &orders("flood-stderr", json!({})))?;
    ensure!(answer.stderr.len() > 1000 && answer.stderr.len() < 256 << 10, "{} bytes", answer.stderr.len());
    for line in answer.stderr.lines() {
        ensure!(line.starts_with("hostile: "), "not marked: {line:?}");
        ensure!(!line.chars().any(|c| c.is_control() && c != '\t'), "control characters: {line:?}");
    }
    ensure!(answer.stderr.contains("more was written than is shown"), "nothing says that something is missing");
    Ok(())
}

#[test]
fn endless_calls_do_not_wash_the_log_away() -> Result<()> {
    let watched = used_node()?;
    watched.node.sh("echo '{\"first\": true}' >> /var/log/postern/audit.jsonl")?;
    call(&watched, "hostile", "ADD", &orders("call-loop", json!({})))?;
    let log = watched.node.sh("cat /var/log/postern/audit.jsonl")?;
    ensure!(log.contains("\"first\""), "the log was rotated by one run of one plugin");
    ensure!(log.lines().count() < 1000, "{} lines", log.lines().count());
    Ok(())
}

#[test]
fn what_a_killed_run_has_done_is_in_the_log() -> Result<()> {
    let watched = used_node()?;
    let config = orders("loop", json!({"make": true}));
    let before = watched.node.sh("wc -l < /var/log/postern/audit.jsonl")?;
    let netns = watched.node.netns("c1");
    // Killed while the plugin loops, long before its deadline.
    watched.node.sh(&format!(
        "CNI_COMMAND=ADD CNI_CONTAINERID=c1 CNI_NETNS={netns} CNI_IFNAME=eth0 CNI_PATH={bin} {bin}/hostile <<'END' &
{config}
END
         tries=0
         until tail -n +$(({before} + 1)) /var/log/postern/audit.jsonl | grep -q veth.create; do
           sleep .01; tries=$((tries+1)); [ $tries -lt 150 ]
         done
         kill -KILL $!; ! wait $!",
        bin = test_bin()?.display(),
        before = before.trim(),
    ))?;
    let log = watched.node.sh(&format!("tail -n +$(({} + 1)) /var/log/postern/audit.jsonl", before.trim()))?;
    ensure!(log.contains("\"operation\":\"veth.create\""), "{log}");
    ensure!(!log.contains("record.remove"), "it was not killed, but ended: {log}");
    call(&watched, "hostile", "DEL", &config).map(drop)
}

#[test]
fn nobody_forges_lines_of_the_log() -> Result<()> {
    let watched = Watched::new(&["c1"])?;
    call(&watched, "hostile", "ADD", &orders("bridge-forgery", json!({})))?;
    let shown = watched.node.sh(&format!("{}/postern log --container c1", test_bin()?.display()))?;
    ensure!(shown.contains("allowed everything"), "the log doesn't show what was asked for: {shown}");
    // A heading of this plugin's, an entry with the time, or what is wrapped below the objects.
    let genuine = |line: &str| {
        let heading = line.starts_with("20") && line.contains(" UTC  ADD ") && line.contains("  hostile (sha256 ");
        let entry = line.starts_with("  ") && line.get(2..4).is_some_and(|hour| hour.parse::<u8>().is_ok());
        heading || entry || line.starts_with(&" ".repeat(59))
    };
    ensure!(shown.lines().all(genuine), "a forged line: {shown}");
    ensure!(!shown.chars().any(|c| c.is_control() && c != '\n'), "control characters: {shown:?}");
    Ok(())
}

#[test]
fn an_operator_can_withdraw_a_grant() -> Result<()> {
    let mut watched = used_node()?;
    // iptables is found through /etc/alternatives.
    watched.node.sh(
        "mount -t tmpfs -o mode=755 etc /mnt; cp -a /etc/alternatives /mnt; mkdir -p /mnt/postern/policy
         mount --move /mnt /etc
         echo 'withdraw = [\"masquerade\"]' > /etc/postern/policy/hostile.toml",
    )?;
    // mount(8) keeps notes below /run.
    watched.look()?;
    let good = orders("good", json!({"make": true}));
    refused(
        &mut watched,
        "hostile",
        &good,
        110,
        "policy does not allow plugin \"hostile\" masquerade.ensure…[grant.masquerade]",
    )?;
    watched.node.sh("chmod 666 /etc/postern/policy/hostile.toml")?;
    refused(&mut watched, "hostile", &good, 999, "hostile.toml can be written by others…chmod go-w")
}

#[test]
fn plugins_that_are_half_there_are_not_run() -> Result<()> {
    let mut watched = used_node()?;
    let cases = [
        ("nopolicy", "plugin \"nopolicy\" has no policy at …nopolicy.toml…`postern add FILE.wasm --policy FILE`"),
        ("nocode", "there is no plugin \"nocode\" in …`postern add FILE.wasm --policy FILE`"),
        ("unlisted", "there is no plugin \"unlisted\" in …`postern add FILE.wasm --policy FILE`"),
    ];
    each(
        cases,
        |case| case.0.to_owned(),
        |(plugin, text)| {
            for verb in ["ADD", "DEL", "CHECK"] {
                let answer = call(&watched, plugin, verb, &orders("good", json!({"type": plugin, "make": true})))?;
                watched.unchanged()?;
                Refusal::of(&answer)?.expect(999, text)?;
            }
            // What another made is removed all the same, by its record.
            call(&watched, "hostile", "ADD", &orders("good", json!({"make": true})))?.success()?;
            call(&watched, plugin, "DEL", &orders("good", json!({"type": plugin})))?.success()?;
            watched.unchanged()
        },
    )
}
