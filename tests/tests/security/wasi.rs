//! A plugin imports all of WASI and tries to use it. The plugin reaches nothing, and its attempts have no effect
//! outside.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::{Refusal, Watched, each, test_bin};
use postern_tests::{Network, Node};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

/// The plugin's act, the code of the result, and words of the error.
type Reach = (&'static str, u64, &'static str);

const REACHES: [Reach; 18] = [
    ("files", 100, "0 directories; NotFound NotFound; NotFound NotFound; "),
    ("sockets", 100, "PermissionDenied PermissionDenied PermissionDenied PermissionDenied"),
    ("raw-sockets", 100, "Err(ErrorCode { code: 1, name: 'access-denied'…name: 'permanent-resolver-failure'"),
    ("names", 100, "Uncategorized"),
    ("http", 100, "true true Err(…HttpRequestDenied"),
    ("http-else", 999, "trapped: called wasi:http/types@…#[method]fields.entries: a plugin has no network"),
    ("clock", 100, "slept true, after 2020 true, poll [1], ready false, resolution true"),
    ("wait", 999, "ran past its deadline and was stopped"),
    ("subscribe", 999, "ran past its deadline and was stopped"),
    ("spin", 999, "ran past its deadline and was stopped"),
    ("poll", 999, "resource table has no free keys"),
    ("poll-some", 999, "resource table has no free keys"),
    ("poll-few", 100, "of 1001 ready [1000]"),
    ("streams", 999, "resource table has no free keys"),
    ("memory", 999, "ran out of memory: the limit is 64 MiB"),
    ("random", 999, "asked for 1099511627776 random bytes at once"),
    ("flood", 999, "wrote too much to standard output"),
    ("nonsense", 100, "there is no nonsense"),
];

fn reaching(node: &Node, bin: &Path, what: &str) -> Result<Network> {
    Ok(Network::new(node, &json!({"type": "reaching", "do": what}))?.by(bin))
}

#[test]
fn it_finds_nothing() -> Result<()> {
    let bin = test_bin()?;
    each(
        &REACHES,
        |(what, _, _)| (*what).to_owned(),
        |(what, code, words)| {
            let mut watched = Watched::new(&["c1"])?;
            let start = Instant::now();
            let answer = reaching(&watched.node, &bin, what)?.call("ADD", "c1")?;
            Refusal::of(&answer)?.expect(*code, words)?;
            ensure!(!answer.stdout.contains("OPEN") && !answer.stdout.contains("SENT"), "{answer:?}");
            ensure!(start.elapsed() < Duration::from_secs(60), "took {:?}", start.elapsed());
            watched.unchanged()
        },
    )
}

/// If the plugin uses nothing of WASI, it runs like any other plugin.
#[test]
fn the_other_verbs_are_those_of_any_plugin() -> Result<()> {
    let mut watched = Watched::new(&["c1"])?;
    let network = reaching(&watched.node, &test_bin()?, "")?;
    ensure!(network.call("DEL", "c1")?.status == 0, "DEL");
    let answer = network.call("VERSION", "c1")?;
    ensure!(answer.success()?.get("supportedVersions").is_some(), "{answer:?}");
    watched.unchanged()
}

/// The host verifies the program `postern-wasi` like code and manifest. Without the verified program, the plugin is not
/// run.
#[test]
fn the_program_that_runs_it_is_trusted_or_not_run() -> Result<()> {
    let (from, bin) = (test_bin()?, Path::new("/run/copy"));
    let there = "/run/copy/postern-wasi";
    for (spoil, words) in [
        (
            format!("rm {there}"),
            "plugin \"reaching\" imports all of WASI, and needs /run/copy/postern-wasi, which is missing: install the package postern-wasi",
        ),
        (format!("chmod o+w {there}"), "/run/copy/postern-wasi…others"),
        (format!("mv {there} {there}.real; ln -s {there}.real {there}"), "/run/copy/postern-wasi is a symbolic link"),
        (format!("rm {there}; mkdir {there}"), "/run/copy/postern-wasi is no regular file"),
        (format!("echo nonsense >{there}"), "cannot be started: postern-wasi: Exec format error"),
        (format!("cp /bin/true {there}"), "plugin \"reaching\""),
    ] {
        let watched = Watched::new(&["c1"])?;
        let node = &watched.node;
        node.sh(&postern_tests::copy_bin(&from, "/run/copy"))?;
        node.sh(&spoil)?;
        let answer = reaching(node, bin, "files")?.call("ADD", "c1")?;
        Refusal::of(&answer)?.expect(999, words).with_context(|| spoil.clone())?;
        if spoil.starts_with("rm") {
            let printed = node.postern_of(bin, "doctor --json")?.stdout;
            let told = if spoil.contains("mkdir") {
                "postern-wasi is no regular file"
            } else {
                " imports all of WASI, and needs "
            };
            ensure!(printed.contains(told), "{printed}");
        }
        // Other plugins don't need `postern-wasi`.
        let loopback = Network::new(node, &json!({"type": "loopback"}))?.by(bin).interface("lo");
        loopback.add("c1").with_context(|| spoil)?;
    }
    Ok(())
}
