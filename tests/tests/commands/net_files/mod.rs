//! Random list files, directories of networks and caches of results, as `postern net` reads them. Nothing panics, and
//! errors have their codes. Whatever a file contains, no network gets another network's cache entry.
//!
//! `POSTERN_FUZZ_SEED` sets the first seed, `POSTERN_FUZZ_RUNS` the number of runs. Without `POSTERN_FUZZ_RUNS`, each
//! test runs for `SECONDS`, or for `POSTERN_FUZZ_SECONDS`. `make fuzz` gives these tests a share of its time.

#![allow(clippy::indexing_slicing, reason = "a missing key of a JSON value is null")]

mod cache;
mod directories;
mod lists;

use anyhow::Result;
use postern_tests::proof::number;
use postern_tests::{Random, Vocabulary};
use serde_json::{Map, Value, json};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time of each test here, in seconds.
const SECONDS: u64 = 3;

/// The least number of runs, even on a slow machine.
const LEAST: u64 = 40;

/// Calls `run` again and again, each time with a new sequence of random numbers. Prints `what` with the number of runs.
fn repeat(what: &str, mut run: impl FnMut(&mut Random) -> Result<()>) -> Result<()> {
    let first = number("POSTERN_FUZZ_SEED").unwrap_or(1);
    let asked = number("POSTERN_FUZZ_RUNS");
    let seconds = number("POSTERN_FUZZ_SECONDS").unwrap_or(if asked.is_some() { 1 << 20 } else { SECONDS });
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut runs = 0;
    while runs < asked.unwrap_or(u64::MAX) && (Instant::now() < until || runs < LEAST) {
        let seed = first + runs;
        let tried = catch_unwind(AssertUnwindSafe(|| run(&mut Random::new(seed))));
        let seeded = || format!("{what}: POSTERN_FUZZ_SEED={seed} POSTERN_FUZZ_RUNS=1");
        match tried {
            Ok(outcome) => outcome.map_err(|error| error.context(seeded()))?,
            Err(panic) => anyhow::bail!("{}: a panic: {}", seeded(), words(panic.as_ref())),
        }
        runs += 1;
    }
    println!("{runs} {what}");
    Ok(())
}

fn words(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied()).unwrap_or_default()
}

/// Returns an empty directory for a test. No other program of the node uses this directory.
fn place(name: &str) -> Result<PathBuf> {
    let place = PathBuf::from("/run/net-files").join(name);
    if place.exists() {
        std::fs::remove_dir_all(&place)?;
    }
    std::fs::create_dir_all(&place)?;
    Ok(place)
}

/// The vocabulary of random JSON.
const WORDS: Vocabulary<'_> = Vocabulary { keys: &KEYS, texts: &TEXTS };

/// Keys of lists, plugins and entries of the cache, some in another spelling.
const KEYS: [&str; 26] = [
    "cniVersion",
    "CNIVersion",
    "cniVersions",
    "name",
    "Name",
    "plugins",
    "type",
    "TYPE",
    "disableCheck",
    "disableGC",
    "loadOnlyInlinedPlugins",
    "capabilities",
    "Capabilities",
    "runtimeConfig",
    "prevResult",
    "ipam",
    "kind",
    "containerId",
    "config",
    "ifName",
    "networkName",
    "netns",
    "cniArgs",
    "capabilityArgs",
    "result",
    "mac",
];

const TEXTS: [&str; 24] = [
    "",
    "n",
    "a",
    "a-b",
    "../x",
    "/etc/passwd",
    "a/b",
    "a b",
    "\0",
    "\u{1b}[2J",
    "é",
    "bridge",
    "true",
    "FALSE",
    "0.2.0",
    "0.3.1",
    "0.4.0",
    "1.0.0",
    "1.1.0",
    "9.9.9",
    "1.0.0.0",
    "01.0",
    "cniCacheV1",
    "99999999999999999999.0.0",
];

/// Returns the value if it is an object, else an empty object.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Returns a list with plausible keys, of a network with this name.
fn list(random: &mut Random, name: &str) -> Value {
    let mut list = json!({"name": name, "cniVersion": random.one_of(&["0.2.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"])});
    let plugins: Vec<Value> = (0..random.index(4))
        .map(|at| {
            let mut plugin = json!({"type": random.one_of(&["bridge", "portmap", "tuning"]), "at": at});
            if random.chance(2) {
                plugin["capabilities"] =
                    json!({"mac": random.chance(2), "ips": random.chance(2), "portMappings": true});
            }
            if random.chance(1) {
                plugin["runtimeConfig"] = WORDS.value(random, 2);
            }
            plugin
        })
        .collect();
    if !plugins.is_empty() || random.chance(1) {
        list["plugins"] = json!(plugins);
    }
    if random.chance(1) {
        let versions = ["0.1.0", "0.3.0", "0.3.1", "1.0.0", "1.0", "1.1.0", "1.2.0", "9.9.9"];
        list["cniVersions"] = (0..random.index(5)).map(|_| json!(random.one_of(&versions))).collect();
    }
    for key in ["disableCheck", "disableGC", "loadOnlyInlinedPlugins"] {
        if random.index(6) == 0 {
            list[key] = json!(random.one_of(&["true", "False", "TRUE", "yes"]));
        }
    }
    list
}
