//! A benchmark of runs on nodes with few and with many attachments. All nodes exist at the same time, and the rounds
//! of all nodes alternate. So other load of the machine affects all nodes alike. On each node it measures ADD, CHECK
//! and DEL of one more attachment, and the GC verb with all attachments valid.
//!
//! `postern-bench-scale [--counts 1,1000] [--runs N] [--patch JSON] [--behind JSON] [--no-flood] [--steps] [--json
//! FILE] [--then COMMAND] [LABEL=DIRECTORY...]`, under `tests/in-namespaces`.
//!
//! The *floor* is measured too: a program that only sends the same netlink messages. The time of a run beyond the floor
//! is the plugin's own time. The *witness* shows the effect of the processor's caches: a run of the plugin `static`,
//! which uses no netlink, directly after the floor. The witness does the same work on each node. If it takes longer on
//! a full node, the kernel's work on many rules has replaced the contents of the caches.
//!
//! With `--behind` each attachment's list also has the given plugin, whose runs are measured instead of bridge's runs.
//! `PORT` in the text stands for a number that differs for each attachment.
//!
//! With `--no-flood` the ports of the existing attachments get no frames for unknown receivers. By default, the kernel
//! copies each new link's first frames to a thousand ports. That takes longer than a run, and the kernel counts it as
//! time of the running process.
//!
//! With `--steps` the benchmark also counts the instructions of a run. The count takes a minute for each run.
//!
//! The plugins of the first directory make the existing attachments. Without a directory, the plugins under test are
//! measured beside the native plugins. A bridge and its network have 1,000 attachments. 100 existing attachments share
//! a container namespace: the host has the same objects as with one namespace for each.

#![allow(clippy::print_stdout, reason = "its output is a table")]

mod report;
mod rounds;
mod stand;
mod steps;

use anyhow::{Context, Result, bail, ensure};
use postern_tests::{native_bin, plugin_bin};
use rounds::Round;
use serde_json::{Value, json};
use stand::Stand;
use std::path::PathBuf;
use std::process::Command;

/// The number of rounds before the first measured round.
const WARM_UP: usize = 2;

/// The plugins to measure.
struct Side {
    label: String,
    bin: PathBuf,
}

struct Options {
    counts: Vec<usize>,
    runs: usize,
    patch: Value,
    behind: Option<String>,
    flood: bool,
    steps: bool,
    file: Option<String>,
    then: Option<String>,
    sides: Vec<Side>,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == "steps" => return steps::run(rest),
        _ => {}
    }
    let options = options(arguments)?;
    let stands: Vec<Stand> = options.counts.iter().map(|count| Stand::new(&options, *count)).collect::<Result<_>>()?;
    let mut rounds: Vec<Vec<Round>> = stands.iter().map(|_| Vec::new()).collect();
    for number in 0..WARM_UP + options.runs {
        // Each node is first in the same number of rounds.
        for turn in 0..stands.len() {
            let index = (turn + number) % stands.len();
            let (Some(stand), Some(rounds)) = (stands.get(index), rounds.get_mut(index)) else { continue };
            let round = rounds::measure(stand, &options, number)?;
            if number >= WARM_UP {
                rounds.push(round);
            }
        }
    }
    for stand in &stands {
        stand.is_as_full_as_before()?;
    }
    let rows = report::print(&options, &rounds);
    if let Some(file) = &options.file {
        let raw = options.counts.iter().zip(&rounds).map(|(count, rounds)| json!({"count": count, "rounds": rounds}));
        let text = serde_json::to_string(&json!({"rows": rows, "raw": raw.collect::<Vec<_>>()}))?;
        std::fs::write(file, text).with_context(|| file.clone())?;
    }
    if options.steps {
        report::steps(&options, &stands)?;
    }
    // The command can inspect the fullest node.
    if let (Some(then), Some(stand)) = (&options.then, stands.iter().max_by_key(|stand| stand.count)) {
        let status = stand.within(|| Ok(Command::new("sh").args(["-c", then]).status()?))?;
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
        steps: false,
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
            "--steps" => options.steps = true,
            "--json" => options.file = Some(value()?),
            "--then" => options.then = Some(value()?),
            side => match side.split_once('=') {
                Some((label, bin)) => options.sides.push(Side { label: label.to_owned(), bin: bin.into() }),
                None => bail!(
                    "unknown argument {side}; usage: postern-bench-scale [--counts N,...] [--runs N] [--patch JSON] \
                     [--behind JSON] [--no-flood] [--steps] [--json FILE] [--then COMMAND] [LABEL=DIRECTORY...]"
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
    ensure!(options.runs > 0 && !options.counts.is_empty(), "--runs and --counts need a positive number");
    Ok(options)
}
