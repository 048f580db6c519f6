//! What a run costs, in figures that noise can't fool: system calls, page faults, and calls from guest to gate. They are
//! counted for each plugin and verb, and may not be beyond the figures in `tests/costs.txt` by more than a tolerance.
//!
//! `POSTERN_WRITE_COSTS=1` writes that file anew. A change that costs more has to say so, by a new file.

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use postern_tests::tour::{Leg, legs};
use postern_tests::{plugin_bin, shipped};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/costs.txt");
const TRACE: &str = "/var/log/trace";
/// A run may have to wait for the kernel, and looks again and again meanwhile. What is beyond is counted once more.
const ATTEMPTS: usize = 4;

/// The figures of one run, with those of its sandboxes and programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    system_calls: u64,
    /// Those that read no disk. They depend on the kernel and on the build.
    page_faults: u64,
    /// The guests' calls to the gate. Each is a round trip between two processes.
    calls: u64,
}

impl Cost {
    /// True if no figure is beyond the one that is expected: by 4 % and 12 for system calls, and by 25 % and 40 for page
    /// faults.
    fn is_within(self, expected: Self) -> bool {
        self.system_calls <= expected.system_calls * 104 / 100 + 12
            && self.page_faults <= expected.page_faults * 125 / 100 + 40
            && self.calls <= expected.calls
    }

    /// The smaller figures of both.
    fn least(self, other: Self) -> Self {
        Self {
            system_calls: self.system_calls.min(other.system_calls),
            page_faults: self.page_faults.min(other.page_faults),
            calls: self.calls.min(other.calls),
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>6}{:>7}{:>4}", self.system_calls, self.page_faults, self.calls)
    }
}

type Costs = BTreeMap<(String, String), Cost>;

/// Reads the file: leg, verb, and the figures.
fn expected() -> Result<Costs> {
    let text = std::fs::read_to_string(FILE).with_context(|| FILE.to_owned())?;
    let line = |line: &str| {
        let (name, figures) = line.split_once(':').context("no colon")?;
        let mut words = figures.split_whitespace();
        let verb = words.next().context("no verb")?.to_owned();
        let numbers: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>()?;
        let [system_calls, page_faults, calls] = numbers[..] else { anyhow::bail!("not three figures") };
        Ok(((name.trim().to_owned(), verb), Cost { system_calls, page_faults, calls }))
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|text| line(text).with_context(|| format!("{FILE}: {text}"))).collect()
}

fn faults() -> Result<u64> {
    Ok(u64::try_from(getrusage(UsageWho::RUSAGE_CHILDREN)?.minor_page_faults())?)
}

/// Counts all runs of a leg: once under strace, and once without, because strace makes page faults of its own.
fn count(bin: &Path, leg: &Leg) -> Result<Vec<(String, Cost)>> {
    let wrapper = ["strace", "-f", "-qq", "-s", "24", "-e", "signal=none", "-o", TRACE].map(str::to_owned);
    let mut costs = Vec::new();
    leg.walk_in_place(bin, |node, verb, call| {
        let answer = node.call_under(&wrapper, call)?;
        ensure!(answer.status == 0, "{} {verb}: {answer:?}", leg.name);
        let trace = std::fs::read_to_string(node.path(TRACE))?;
        let (mut system_calls, mut calls) = (0, 0);
        for line in trace.lines() {
            let Some((_, line)) = line.trim_start().split_once(' ') else { continue };
            let line = line.trim_start();
            // A call that was interrupted has a second line.
            system_calls += u64::from(!line.starts_with("<..."));
            calls += u64::from(line.starts_with("sendto(") && line.contains(r#"{\"call\":"#));
        }
        costs.push((verb.to_owned(), Cost { system_calls, page_faults: 0, calls }));
        Ok(answer)
    })?;
    let mut costs = costs.into_iter();
    let mut complete = Vec::new();
    leg.walk_in_place(bin, |node, _, call| {
        let before = faults()?;
        let answer = node.call(call)?;
        let (verb, cost) = costs.next().context("a verb that was not traced")?;
        complete.push((verb, Cost { page_faults: faults()? - before, ..cost }));
        Ok(answer)
    })?;
    Ok(complete)
}

#[test]
fn no_run_costs_more_than_it_did() -> Result<()> {
    let bin = plugin_bin()?;
    let is_writing = std::env::var_os("POSTERN_WRITE_COSTS").is_some();
    let expected = if is_writing { Costs::new() } else { expected()? };
    let mut written = vec![
        "# What a run of each plugin and verb costs: system calls, page faults, calls from guest to gate. tests/tests/costs.rs".to_owned(),
        "# compares runs with it, and writes it anew with POSTERN_WRITE_COSTS=1.".to_owned(),
    ];
    let mut beyond = Vec::new();
    for plugin in shipped()? {
        let legs = legs(&plugin)?;
        if legs.is_empty() {
            println!("SKIPPED: {plugin}: this kernel has no such links, or the tour (src/tour.rs) no network for it");
        }
        for leg in legs {
            let key = |verb: &str| (leg.name.clone(), verb.to_owned());
            let mut counted = count(&bin, &leg)?;
            let is_beyond = |counted: &[(String, Cost)]| {
                counted.iter().any(|(verb, cost)| expected.get(&key(verb)).is_some_and(|known| !cost.is_within(*known)))
            };
            for _ in 1..ATTEMPTS {
                if !is_writing && !is_beyond(&counted) {
                    break;
                }
                for ((_, least), (_, cost)) in counted.iter_mut().zip(count(&bin, &leg)?) {
                    *least = least.least(cost);
                }
            }
            for (verb, cost) in counted {
                written.push(format!("{}: {verb:<8}{cost}", leg.name));
                match expected.get(&key(&verb)) {
                    Some(known) if cost.is_within(*known) => {}
                    Some(known) => {
                        beyond.push(format!("{} {verb}: {known} was expected, and it costs {cost}", leg.name))
                    }
                    None if is_writing => {}
                    None => beyond.push(format!("{} {verb}: {FILE} does not know it: {cost}", leg.name)),
                }
            }
        }
    }
    if is_writing {
        std::fs::write(FILE, written.join("\n") + "\n").with_context(|| FILE.to_owned())?;
    }
    ensure!(
        beyond.is_empty(),
        "runs cost more system calls, page faults or calls than {FILE} says:\n{}\nIf that has to be, write it anew with \
         POSTERN_WRITE_COSTS=1, and say in the commit why",
        beyond.join("\n")
    );
    Ok(())
}
