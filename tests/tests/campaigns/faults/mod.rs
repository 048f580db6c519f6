//! The n-th step fails, for every n and every plugin. A step is an operation that is refused, or a system call of the
//! gate that fails or at which the gate is killed. After any outcome, DEL, `postern gc` and the next ADD each restore
//! the node. A failed ADD itself already leaves nothing.
//!
//! No address is ever free while something uses it. No lease returns to a DHCP service while a link has the address. No
//! port is up without its guard. If an ADD succeeds despite a fault, its record shows a successful ADD, and no link
//! takes router advertisements. The test fails at a system call that is missing in the lists of [`fault`].
//!
//! `make test` refuses every operation of each scenario, and tries a sample of the other faults. For each verb, the
//! sample has two faults of each kind in the few scenarios that together have all kinds of effect. It has one fault of
//! each kind in the other scenarios. `POSTERN_FAULTS_SEED` chooses another sample. `POSTERN_FAULTS=all` (`make faults`)
//! tries all faults, with every error number. `POSTERN_FAULTS=N` tries N of each kind in every scenario.
//! `POSTERN_FAULTS_ONLY=PATTERN,…` names scenarios, lists ([`chain`]) or verbs, and `POSTERN_FAULTS_OF` names plugins.
//! `POSTERN_FAULTS_THESE=TEXT;…` tries only these faults again. A failure message shows the text:
//! `tap, DEL: EIO instead of read 3`.

mod chain;
mod fault;
mod passing;
mod place;
mod scenarios;

use anyhow::{Context, Result, anyhow, ensure};
use fault::{Fault, KINDS};
use place::{Outcome, Place, RESTORATIONS, Restoration};
use postern_tests::kernel::has_or_skips_part;
use postern_tests::proof;
use scenarios::Scenario;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Mutex;
use std::time::Instant;

/// The number of faults of one kind that `make test` tries in one scenario and verb, if [`covering`] returns the
/// scenario.
const SAMPLE: usize = 2;
/// The number for each of the other scenarios.
const REST: usize = 1;
/// The greatest number of nodes at the same time.
const THREADS: usize = 8;
/// The number of nodes that share the faults of one scenario and verb, if all are tried. Some runs wait for a second.
const PARTS: usize = 8;
/// The number of failures after which the test stops.
const ENOUGH: usize = 40;

/// The outcomes of the faults of one kind in one scenario and verb.
#[derive(Default)]
struct Figures {
    possible: usize,
    tried: usize,
    outcomes: BTreeMap<Outcome, usize>,
}

/// All results so far.
#[derive(Default)]
struct Report {
    figures: BTreeMap<(usize, &'static str, usize), Figures>,
    failures: Vec<String>,
}

#[test]
fn the_nth_thing_goes_wrong() -> Result<()> {
    let start = Instant::now();
    let wanted = std::env::var("POSTERN_FAULTS").unwrap_or_default();
    let all = wanted == "all";
    let sample = if wanted.is_empty() || all { SAMPLE } else { wanted.parse().context("POSTERN_FAULTS")? };
    ensure!(sample > 0, "POSTERN_FAULTS is \"all\", or a number of faults of each kind");
    let sample = if all { usize::MAX } else { sample };
    println!("POSTERN_FAULTS_SEED={}", seed());
    let rest = if wanted.is_empty() { REST } else { sample };
    let only = std::env::var("POSTERN_FAULTS_ONLY").unwrap_or_default();
    let mut scenarios = scenarios::all();
    for kind in ["vlan", "ipvlan", "dummy", "vrf", "tap"] {
        if !has_or_skips_part(kind)? {
            scenarios.retain(|scenario| scenario.plugin != kind);
        }
    }
    // A virtual machine tests only the plugins whose links other kernels lack.
    let group = std::env::var("POSTERN_FAULTS_OF").unwrap_or_default();
    scenarios.retain(|scenario| group.is_empty() || group.split(' ').any(|plugin| plugin == scenario.plugin));
    let kinds = each_of(&scenarios, |scenario| Ok(Place::new(scenario, "ADD")?.kinds))?;
    let chosen = covering(&kinds);
    let parts = if all { PARTS } else { 1 };
    let mut work: Vec<(usize, &Scenario, &'static str, usize)> = scenarios
        .iter()
        .enumerate()
        .flat_map(|(number, scenario)| ["ADD", "CHECK", "DEL", "GC"].map(|verb| (number, scenario, verb)))
        // A plugin that makes nothing on the node has no garbage.
        .filter(|(_, scenario, verb)| *verb != "GC" || !["loopback", "static"].contains(&scenario.plugin))
        // The kernel allows a parent only one passthru link or one link per VLAN, but a collection needs two
        // containers.
        .filter(|(_, scenario, verb)| {
            *verb != "GC" || !(scenario.name.contains("passthru") || scenario.plugin == "vlan")
        })
        .filter(|(_, scenario, verb)| is_chosen(&only, scenario.name, verb))
        .flat_map(|(number, scenario, verb)| (0..parts).map(move |part| (number, scenario, verb, part)))
        .collect();
    work.reverse();
    let (work, report) = (Mutex::new(work), Mutex::new(Report::default()));
    let next = || work.lock().ok()?.pop();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads())
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    while let Some((number, scenario, verb, part)) = next() {
                        let sample = if chosen.contains(&number) { sample } else { rest };
                        let outcome = search(number, scenario, verb, (part, parts), sample, &report);
                        let mut report = report.lock().map_err(|_| anyhow!("a thread panicked"))?;
                        report.failures.extend(outcome.err().map(|error| format!("{error:#}")));
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
    })?;
    let report = report.into_inner().map_err(|_| anyhow!("a thread panicked"))?;
    println!("{}\n{} s", table(&report, &scenarios), start.elapsed().as_secs());
    let count = report.failures.len();
    ensure!(count == 0, "{count} faults left something, or were badly answered:\n{}", report.failures.join("\n\n"));
    // A fault that does not exist was not tried: its call may now have another number.
    let these = these();
    let tried: usize = report.figures.values().map(|figures| figures.tried).sum();
    let is_repeated = !these.is_empty();
    ensure!(!is_repeated || tried == these.len(), "only {tried} of the {} named faults exist", these.len());
    ensure!(
        is_repeated || report.figures.values().any(|figures| figures.outcomes.contains_key(&Outcome::Killed)),
        "no gate was killed"
    );
    Ok(())
}

/// Returns the number of nodes at the same time. Runs mostly wait for the kernel to remove links, and for strace.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(THREADS, |count| (4 * count.get()).min(THREADS))
}

/// Returns the number that chooses the sample: each seed tries other faults.
fn seed() -> usize {
    proof::number("POSTERN_FAULTS_SEED").and_then(|seed| usize::try_from(seed).ok()).unwrap_or(1)
}

/// Returns the faults to try again. An empty set means all faults.
fn these() -> BTreeSet<String> {
    let these = std::env::var("POSTERN_FAULTS_THESE").unwrap_or_default();
    these.split(';').map(|this| this.trim().to_owned()).filter(|this| !this.is_empty()).collect()
}

/// Returns true if a pattern names the scenario or the verb, or if there is no pattern.
fn is_chosen(only: &str, scenario: &str, verb: &str) -> bool {
    only.split(',').any(|pattern| scenario.contains(pattern) || verb == pattern)
}

/// Returns the result of `look` for each scenario, several at a time.
fn each_of<T: Send>(scenarios: &[Scenario], look: impl Fn(&Scenario) -> Result<T> + Sync) -> Result<Vec<T>> {
    let size = scenarios.len().div_ceil(threads()).max(1);
    let parts: Vec<Result<Vec<T>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = scenarios
            .chunks(size)
            .map(|part| {
                let look = &look;
                scope.spawn(move || {
                    part.iter().map(|scenario| look(scenario).context(scenario.name)).collect::<Result<Vec<T>>>()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked")))).collect()
    });
    Ok(parts.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Returns the scenarios that together have every kind of effect. It first chooses the scenario with most kinds that no
/// chosen scenario has. Among equal scenarios the first counts.
fn covering(kinds: &[BTreeSet<String>]) -> BTreeSet<usize> {
    let (mut chosen, mut covered) = (BTreeSet::new(), BTreeSet::new());
    loop {
        let new = |number: &usize| kinds.get(*number).map_or(0, |kinds| kinds.difference(&covered).count());
        let Some(best) = (0..kinds.len()).rev().max_by_key(new).filter(|best| new(best) > 0) else { return chosen };
        chosen.insert(best);
        covered.extend(kinds.get(best).into_iter().flatten().cloned());
    }
}

#[test]
fn few_scenarios_have_every_kind_of_effect() {
    let kinds = |text: &str| text.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
    let all = ["", "veth", "veth lease", "veth lease guard", "veth other", "loopback", "lease"].map(kinds);
    assert_eq!(covering(&all), BTreeSet::from([3, 4, 5]));
    assert!(covering(&[]).is_empty());
}

/// Tries the faults of one scenario's verb. Several nodes share the faults: `part` is this node's share.
fn search(
    number: usize,
    scenario: &Scenario,
    verb: &'static str,
    (part, parts): (usize, usize),
    sample: usize,
    report: &Mutex<Report>,
) -> Result<()> {
    let named = |error: anyhow::Error| error.context(format!("{}, {verb}", scenario.name));
    let mut place = Place::new(scenario, verb).map_err(named)?;
    let faults = place.faults(sample == usize::MAX).map_err(named)?;
    let these = these();
    let is_meant = |fault: &Fault| these.is_empty() || these.contains(&format!("{}, {verb}: {fault}", scenario.name));
    let mut turn = number;
    for (kind, faults) in faults.iter().enumerate() {
        let mut figures = Figures { possible: faults.len(), ..Figures::default() };
        // There are few operations, so every operation is always refused once.
        let stride = if kind == 0 { 1 } else { faults.len().div_ceil(sample).max(1) };
        for (place_in_turn, fault) in faults.iter().skip((number + seed()) % stride).step_by(stride).enumerate() {
            turn += 1;
            if place_in_turn % parts != part || !is_meant(fault) {
                continue;
            }
            let way = RESTORATIONS.get(turn % RESTORATIONS.len()).copied().unwrap_or(Restoration::Del);
            figures.tried += 1;
            match place.run(fault, way) {
                Ok(outcome) => *figures.outcomes.entry(outcome).or_default() += 1,
                Err(error) => {
                    let text = format!("{}, {verb}: {fault}: {error:#}", scenario.name);
                    // A sweep of all faults takes hours, so each failure is printed at once.
                    println!("FAILED: {text}");
                    let mut report = report.lock().map_err(|_| anyhow!("a thread panicked"))?;
                    report.failures.push(text);
                    if report.failures.len() >= ENOUGH {
                        return Ok(());
                    }
                    drop(report);
                    place = Place::new(scenario, verb).map_err(named)?;
                }
            }
        }
        if sample == usize::MAX {
            println!(
                "{}, {verb}, {}: {} tried",
                scenario.name,
                KINDS.get(kind).copied().unwrap_or_default(),
                figures.tried
            );
        }
        let mut report = report.lock().map_err(|_| anyhow!("a thread panicked"))?;
        let sum = report.figures.entry((number, verb, kind)).or_default();
        sum.possible = figures.possible;
        sum.tried += figures.tried;
        for (outcome, count) in figures.outcomes {
            *sum.outcomes.entry(outcome).or_default() += count;
        }
    }
    Ok(())
}

/// Returns the faults that were tried, with their outcomes.
fn table(report: &Report, scenarios: &[Scenario]) -> String {
    let mut text = format!(
        "{:<22} {:<6} {:<20} {:>8} {:>6} {:>10} {:>11} {:>7} {:>10} {:>7}\n",
        "scenario", "verb", "fault", "n max", "tried", "succeeded", "complained", "failed", "left sth.", "killed"
    );
    let mut line = |name: &str, verb: &str, kind: &str, figures: &Figures| {
        let of = |outcome| figures.outcomes.get(&outcome).copied().unwrap_or_default();
        let _ = writeln!(
            text,
            "{name:<22} {verb:<6} {kind:<20} {:>8} {:>6} {:>10} {:>11} {:>7} {:>10} {:>7}",
            figures.possible,
            figures.tried,
            of(Outcome::Succeeded),
            of(Outcome::Complained),
            of(Outcome::Failed),
            of(Outcome::Left),
            of(Outcome::Killed)
        );
    };
    let mut total = Figures::default();
    for ((number, verb, kind), figures) in &report.figures {
        let name = scenarios.get(*number).map_or("", |scenario| scenario.name);
        line(name, verb, KINDS.get(*kind).copied().unwrap_or_default(), figures);
        total.possible += figures.possible;
        total.tried += figures.tried;
        for (outcome, count) in &figures.outcomes {
            *total.outcomes.entry(*outcome).or_default() += count;
        }
    }
    line("all", "", "", &total);
    text
}

/// A fault that never occurs proves nothing. The test checks that strace injects the faults.
#[test]
fn faults_do_come() -> Result<()> {
    let scenario = scenarios::all().into_iter().find(|scenario| scenario.name == "bridge").ok_or(anyhow!("none"))?;
    let mut place = Place::new(&scenario, "ADD")?;
    let error = Fault::Error { call: "sendto".to_owned(), errno: "ENOBUFS", at: 6 };
    ensure!(place.run(&error, Restoration::Del)? == Outcome::Failed, "no error came");
    let kill = Fault::Kill { call: "sendto".to_owned(), at: 6 };
    ensure!(place.run(&kill, Restoration::Del)? == Outcome::Killed, "the gate was not killed");
    let refused = Fault::Operations { plugin: "bridge".to_owned(), allowed: 3 };
    ensure!(place.run(&refused, Restoration::Del)? == Outcome::Failed, "no operation was refused");
    Ok(())
}
