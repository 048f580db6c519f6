//! A plugin that imports all of WASI and tries to use it: it reaches nothing, and the attempts have no effect outside.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::{Refusal, Watched, each, test_bin};
use postern_tests::{Answer, Call};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

/// The plugin's act, the code of its end, and words of its error.
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
    ("memory", 999, "ran out of memory: it may use 64 MiB"),
    ("random", 999, "asked for 1099511627776 random bytes at once"),
    ("flood", 999, "wrote too much to standard output"),
    ("nonsense", 100, "there is no nonsense"),
];

fn call(bin: &Path, watched: &Watched, what: &str, verb: &str) -> Result<Answer> {
    let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "reaching", "do": what});
    let netns = watched.node.netns("c1");
    watched.node.call(&Call::new(bin, "reaching", verb, config.to_string()).attachment("c1", &netns, "eth0"))
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
            let answer = call(&bin, &watched, what, "ADD")?;
            Refusal::of(&answer)?.expect(*code, words)?;
            ensure!(!answer.stdout.contains("OPEN") && !answer.stdout.contains("SENT"), "{answer:?}");
            ensure!(start.elapsed() < Duration::from_secs(60), "took {:?}", start.elapsed());
            watched.unchanged()
        },
    )
}

/// It runs as any other plugin if it uses none of it.
#[test]
fn the_other_verbs_are_those_of_any_plugin() -> Result<()> {
    let bin = test_bin()?;
    let mut watched = Watched::new(&["c1"])?;
    ensure!(call(&bin, &watched, "", "DEL")?.status == 0, "DEL");
    let answer = call(&bin, &watched, "", "VERSION")?;
    ensure!(answer.success()?.get("supportedVersions").is_some(), "{answer:?}");
    watched.unchanged()
}

/// The program that runs it is verified as code and manifest are, and nothing is run without it.
#[test]
fn the_program_that_runs_it_is_trusted_or_not_run() -> Result<()> {
    let from = test_bin()?;
    let there = "/run/copy/postern-wasi";
    for (spoil, words) in [
        (
            format!("rm {there}"),
            "plugin \"reaching\" imports all of WASI, and is run by /run/copy/postern-wasi, which is not there…make install",
        ),
        (format!("chmod o+w {there}"), "/run/copy/postern-wasi…others"),
        (format!("mv {there} {there}.real; ln -s {there}.real {there}"), "/run/copy/postern-wasi is a symbolic link"),
        (format!("rm {there}; mkdir {there}"), "/run/copy/postern-wasi is no regular file"),
        (format!("echo nonsense >{there}"), "cannot be started: postern-wasi: Exec format error"),
        (format!("cp /bin/true {there}"), "plugin \"reaching\""),
    ] {
        let watched = Watched::new(&["c1"])?;
        watched.node.sh(&postern_tests::copy_bin(&from, "/run/copy"))?;
        watched.node.sh(&spoil)?;
        let answer = call(Path::new("/run/copy"), &watched, "files", "ADD")?;
        Refusal::of(&answer)?.expect(999, words).with_context(|| spoil.clone())?;
        if spoil.starts_with("rm") {
            let printed = watched.node.sh("/run/copy/postern doctor --json || true")?;
            let told = if spoil.contains("mkdir") {
                "postern-wasi is no regular file"
            } else {
                " imports all of WASI, and is run by "
            };
            ensure!(printed.contains(told), "{printed}");
        }
        // The other plugins don't need it.
        let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "loopback"}).to_string();
        let netns = watched.node.netns("c1");
        let loopback = Call::new(Path::new("/run/copy"), "loopback", "ADD", config).attachment("c1", &netns, "lo");
        watched.node.call(&loopback)?.success().with_context(|| spoil)?;
    }
    Ok(())
}
