//! Differential test: every case runs on two equal nodes, with the native plugins and with Postern's plugins. After
//! every call, exit status, stdout, links, addresses, routes, rules, sysctls, nftables, iptables and files must be
//! equal. The allowed differences are in `tests/differences.toml`, each with a reason.
//!
//! `cargo test -p postern-tests --test differential -- [--list] [--show] [--jobs N] [--all] [--fresh] [PATTERN...]`: a
//! pattern selects cases whose name contains the pattern; a pattern `GROUP/` selects a group. `--all` prints every mismatch.
//! `--show` runs only Postern's side and prints its observations. `--fresh` observes the native side anew
//! ([`observed`]). With `POSTERN_CNI_BIN` set to the native plugins, the test checks itself.

mod bandwidth;
mod bridge;
mod cross;
mod dummy;
mod firewall;
mod flannel;
mod host_device;
mod ipam;
mod ipvlan;
mod macvlan;
mod observed;
mod portmap;
mod protocol;
mod ptp;
mod sbr;
mod tap;
mod tuning;
mod validated;
mod vlan;
mod vrf;

use anyhow::{Context, Result, bail, ensure};
use observed::Observed;
use postern_tests::{Case, Differences, Mismatch, Side, compare, kernel, native_bin, plugin_bin};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The number of further runs of a case after a delay of the kernel.
const TRIES: usize = 2;
/// The maximum number of repeated runs. More repeated runs show that our ADD does not wait for addresses.
const REPEATED: usize = 3;

struct Options {
    patterns: Vec<String>,
    jobs: usize,
    /// The test runs only the first of each `of` neighbouring cases.
    of: usize,
    list: bool,
    show: bool,
    all: bool,
    fresh: bool,
}

fn options() -> Result<Options> {
    let mut options =
        Options { patterns: Vec::new(), jobs: 2, of: 1, list: false, show: false, all: false, fresh: false };
    options.jobs = std::thread::available_parallelism().map_or(2, |count| count.get() + 1);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--list" => options.list = true,
            "--show" => options.show = true,
            "--all" => options.all = true,
            "--fresh" => options.fresh = true,
            "--one-of" => options.of = arguments.next().context("--one-of needs a number")?.parse()?,
            "--jobs" => options.jobs = arguments.next().context("--jobs needs a number")?.parse()?,
            // An option that `cargo test` passes to every test.
            flag if flag.starts_with('-') => {}
            pattern => options.patterns.push(pattern.to_owned()),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    match test() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // `Termination` would print a useless backtrace.
            println!("differential: FAILED: {}", error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": "));
            ExitCode::FAILURE
        }
    }
}

fn test() -> Result<()> {
    let options = options()?;
    let mut cases = [
        bridge::cases(),
        ptp::cases(),
        macvlan::cases(),
        vlan::cases(),
        ipvlan::cases(),
        dummy::cases(),
        tap::cases(),
        host_device::cases(),
        firewall::cases(),
        portmap::cases(),
        bandwidth::cases(),
        ipam::cases(),
        protocol::cases(),
        sbr::cases(),
        tuning::cases(),
        vrf::cases(),
        flannel::cases(),
        cross::cases(),
    ]
    .concat();
    let total = cases.len();
    let lacking = lacking()?;
    cases.retain(|case| {
        options.patterns.is_empty() || options.patterns.iter().any(|pattern| is_chosen(&case.name, pattern))
    });
    let mut cases: Vec<_> = cases.into_iter().step_by(options.of.max(1)).collect();
    let chosen = cases.len();
    ensure!(chosen > 0, "no case matches the patterns");
    if !options.list {
        cases.retain(|case| !lacking.iter().any(|kind| is_about(&case.name, kind)));
        for kind in &lacking {
            println!("SKIPPED: differential (the cases {kind}/*): this kernel has no {kind} links");
        }
    }
    let is_complete = chosen == total;
    if options.list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return Ok(());
    }
    if let Some(twice) = cases.iter().find(|case| cases.iter().filter(|other| other.name == case.name).count() > 1) {
        bail!("two cases named {}", twice.name);
    }
    let (native, ours) = (native_bin()?, plugin_bin()?);
    if options.show {
        for case in &cases {
            println!("{}\n{:#}", case.name, case.run(Side::Ours, &native, &ours)?);
        }
        return Ok(());
    }
    let itself = native == ours;
    let differences = if itself {
        Differences::none()
    } else {
        Differences::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("differences.toml"))?
    };
    println!("differential: {} of {total} cases, {} against {}", cases.len(), ours.display(), native.display());

    validated::are_seen(&ours)?;
    let observed = if itself || options.fresh { None } else { Some(Observed::new(&native)?) };
    let start = Instant::now();
    let (complete, calls) = (is_complete, cases.iter().map(Case::calls).sum::<usize>());
    let (count, queue) = (cases.len(), Mutex::new(VecDeque::from(cases)));
    let (outcomes, repeated) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                while let Some(case) = queue.lock().ok().and_then(|mut queue| queue.pop_front()) {
                    let compared = || run(&case, &native, &ours, &differences, observed.as_ref());
                    let mut outcome = compared();
                    for _ in 0..TRIES {
                        if !outcome.as_ref().is_ok_and(Outcome::is_slow_kernel) {
                            break;
                        }
                        repeated.fetch_add(1, Ordering::Relaxed);
                        println!(
                            "again {}: an address can't be used yet after our ADD: {:?}",
                            case.name,
                            start.elapsed()
                        );
                        outcome = compared();
                    }
                    report(&case.name, &outcome, options.all);
                    if let Ok(mut outcomes) = outcomes.lock() {
                        outcomes.push(outcome);
                    }
                }
            });
        }
    });

    let outcomes = outcomes.into_inner().unwrap_or_default();
    let good: Vec<_> = outcomes.iter().flatten().filter(|outcome| outcome.unintended.is_empty()).collect();
    let intended = good.iter().filter(|outcome| outcome.intended > 0).count();
    let failed = count - good.len();
    let known = outcomes.iter().flatten().filter(|outcome| outcome.known).count();
    println!(
        "differential: {count} cases (native side of {known} stored earlier), {calls} calls on each side: {} equal, \
         {intended} with intended differences, {failed} different, in {:.1} s",
        good.len() - intended,
        start.elapsed().as_secs_f32()
    );
    let repeated = repeated.into_inner();
    ensure!(repeated <= REPEATED, "{repeated} runs were repeated: does ADD end before its addresses are ready?");
    let mut unused = 0;
    if complete {
        let is_skipped = |pattern: &str| lacking.iter().any(|kind| is_about(pattern, kind));
        for entry in differences.unused().filter(|entry| !entry.is_only_for(is_skipped)) {
            println!("differences.toml: the entry {} {} covers nothing: remove it", entry.case, entry.path);
            unused += 1;
        }
    }
    if failed + unused > 0 {
        bail!("{failed} cases differ, {unused} entries of differences.toml are unused");
    }
    Ok(())
}

/// True if a pattern of the command line chooses a case: a part of its name, or `GROUP/`.
fn is_chosen(case: &str, pattern: &str) -> bool {
    if pattern.ends_with('/') { case.starts_with(pattern) } else { case.contains(pattern) }
}

/// Returns the kinds of links that have cases and that this kernel lacks.
fn lacking() -> Result<Vec<&'static str>> {
    let mut lacking = Vec::new();
    for kind in ["vlan", "ipvlan", "dummy", "tap"] {
        if !kernel::has(kind)? {
            lacking.push(kind);
        }
    }
    Ok(lacking)
}

/// True if a case, or a pattern of cases, is about links of this kind.
fn is_about(case: &str, kind: &str) -> bool {
    case.split_once('/').is_some_and(|(group, _)| group == kind)
}

/// The result of a comparison.
struct Outcome {
    /// True if the observation of the native side was stored earlier.
    known: bool,
    intended: usize,
    unintended: Vec<Mismatch>,
}

impl Outcome {
    /// True if all differences are addresses that are not ready yet. Native plugins and ours wait 5 seconds for
    /// addresses, and then accept a link that does not run. A busy machine can delay addresses that long (twice in
    /// thousands of runs), so the case runs again.
    fn is_slow_kernel(&self) -> bool {
        !self.unintended.is_empty() && self.unintended.iter().all(|mismatch| mismatch.path.ends_with("/tentative"))
    }
}

fn run(
    case: &Case,
    native: &Path,
    ours: &Path,
    differences: &Differences,
    observed: Option<&Observed>,
) -> Result<Outcome> {
    let (left, right) = std::thread::scope(|scope| {
        let left = scope.spawn(|| match observed {
            Some(observed) => observed.native(case, native, ours),
            None => Ok((case.run(Side::Native, native, ours)?, false)),
        });
        let right = case.run(Side::Ours, native, ours);
        (left.join(), right)
    });
    let Ok(left) = left else { bail!("the native side panicked") };
    let ((left, known), right) = (left.context("native side")?, right.context("our side")?);
    let alarms = validated::alarms(ours, case, &right)?;
    if !alarms.is_empty() {
        bail!("`postern net validate` finds errors in a configuration that works: {}", alarms.join("; "));
    }
    let mismatches = compare(&left, &right);
    // The exit status of the step with the mismatch, if both sides have the same status.
    let exit = |mismatch: &Mismatch| {
        let steps = left.as_object()?;
        let (step, _) = steps
            .iter()
            .find(|(step, _)| mismatch.path.strip_prefix(*step).is_some_and(|rest| rest.starts_with('/')))?;
        let of = |tree: &Value| tree.get(step)?.get("exit")?.as_i64();
        of(&left).filter(|status| of(&right) == Some(*status))
    };
    // A mismatch of the printed text (layout, order of keys) does not count if the value differs, too.
    let step = |mismatch: &Mismatch, what: &str| {
        mismatch.path.find(&format!("/{what}")).and_then(|end| mismatch.path.get(..end).map(str::to_owned))
    };
    let values: Vec<_> = mismatches.iter().filter_map(|mismatch| step(mismatch, "stdout")).collect();
    let told = |mismatch: &Mismatch| {
        mismatch.path.ends_with("/text") && step(mismatch, "text").is_some_and(|step| values.contains(&step))
    };
    let (intended, unintended): (Vec<_>, Vec<_>) = mismatches
        .into_iter()
        .filter(|mismatch| !told(mismatch))
        .partition(|mismatch| differences.intended(&case.name, mismatch, exit(mismatch)));
    Ok(Outcome { known, intended: intended.len(), unintended })
}

fn report(name: &str, outcome: &Result<Outcome>, all: bool) {
    match outcome {
        Err(error) => println!("FAIL {name}: {error:#}"),
        Ok(outcome) if outcome.unintended.is_empty() => println!("ok   {name}"),
        Ok(outcome) => {
            let shown = if all { outcome.unintended.len() } else { 12 };
            let mut text = format!("FAIL {name}: {} differences\n", outcome.unintended.len());
            // Exit status and output come first, because they explain the state after the call.
            let mut ordered: Vec<_> = outcome.unintended.iter().collect();
            ordered
                .sort_by_key(|mismatch| !["/exit", "/stdout", "/text"].iter().any(|key| mismatch.path.contains(key)));
            for mismatch in ordered.into_iter().take(shown) {
                text.push_str(&format!("  {}\n", mismatch.to_string().replace('\n', "\n  ")));
            }
            if outcome.unintended.len() > shown {
                text.push_str("  ... (--all prints the rest)\n");
            }
            print!("{text}");
        }
    }
}
