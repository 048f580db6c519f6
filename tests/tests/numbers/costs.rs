//! The costs of a run, in figures that do not depend on the machine's load: system calls, page faults, and calls from
//! guest to gate. The test counts them for each plugin and verb. The figures may exceed the
//! figures of `tests/costs.txt` by a tolerance at most.
//!
//! `POSTERN_WRITE_COSTS=1` writes that file anew. A change with higher costs must include a new file. For links that
//! this kernel lacks, the test runs in a virtual machine, and compares separate lines. `tests/vm/kernel` names the
//! plugins in `POSTERN_COSTS_OF`. In the virtual machine `POSTERN_WRITE_COSTS=1` prints the lines, because the machine
//! keeps no file.
//!
//! Page faults depend on the build. The file has the page faults of the release profile in `Cargo.toml`. With another
//! build, `POSTERN_COSTS_BUILD=other` leaves the page faults out.

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use postern_tests::tour::{Leg, legs};
use postern_tests::{plugin_bin, shipped, skip_part};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/costs.txt");
const TRACE: &str = "/var/log/trace";
/// The suffix of names in lines of the virtual machine.
const IN_VM: &str = " in the VM";
/// The number of counts. A run that waits for the kernel polls, so a count beyond the bound is repeated.
const ATTEMPTS: usize = 4;

/// The figures of one run, including its sandboxes and programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    system_calls: u64,
    /// Page faults that read no disk. They depend on the kernel and on the build.
    page_faults: u64,
    /// The guests' calls to the gate. Each call is a round trip between two processes.
    calls: u64,
}

/// The tolerance: a percentage, and a number in addition. Counts of the same run differ by up to nine system calls and
/// twelve page faults. The percentage is for other kernels. An executable without the order of functions
/// (`tests/order`) exceeds the tolerance: it costs 20 more page faults with VERSION, and 30 to 60 more with other
/// verbs.
const SYSTEM_CALLS: (u64, u64) = (2, 12);
const PAGE_FAULTS: (u64, u64) = (5, 16);

impl Cost {
    /// True if no figure exceeds its expected figure by more than the tolerance.
    fn is_within(self, expected: Self) -> bool {
        let most = |expected: u64, (percent, more): (u64, u64)| expected * (100 + percent) / 100 + more;
        self.system_calls <= most(expected.system_calls, SYSTEM_CALLS)
            && self.page_faults <= most(expected.page_faults, PAGE_FAULTS)
            && self.calls <= expected.calls
    }

    /// Returns the smaller of both costs, for each figure.
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

/// Reads the file: the figures by leg and verb.
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

/// True if the plugins are of another build than the release profile. Their page faults are not compared.
fn is_other_build() -> bool {
    std::env::var_os("POSTERN_COSTS_BUILD").is_some_and(|build| build == "other")
}

/// Returns the page faults of all ended child processes, or 0 if they are not compared.
fn faults() -> Result<u64> {
    if is_other_build() {
        return Ok(0);
    }
    Ok(u64::try_from(getrusage(UsageWho::RUSAGE_CHILDREN)?.minor_page_faults())?)
}

/// True if a line of strace is a guest's call to the gate. The message of a call starts with four bytes of length and
/// then 0 (`postern_types`, the messages of a sandbox). The gate's own messages have the flag `MSG_DONTWAIT`.
fn is_call(line: &str) -> bool {
    let message = line.strip_prefix("sendto(").and_then(|rest| rest.split_once(", \""));
    let Some((_, message)) = message.filter(|_| line.contains("MSG_NOSIGNAL") && !line.contains("MSG_DONTWAIT")) else {
        return false;
    };
    // Each byte is a character or an escape. An escape is a letter, or at most three octal digits.
    let (mut rest, mut byte) = (message, "");
    for _ in 0..5 {
        let digits = rest.strip_prefix('\\').unwrap_or_default().bytes().take(3).take_while(u8::is_ascii_digit).count();
        let length = if rest.starts_with('\\') { 1 + digits.max(1) } else { 1 };
        let Some(parts) = rest.split_at_checked(length) else { return false };
        (byte, rest) = parts;
    }
    byte.strip_prefix('\\').is_some_and(|octal| u32::from_str_radix(octal, 8) == Ok(0))
}

/// Counts all runs of a leg, first under strace, then without it: strace adds page faults.
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
            // An interrupted call has a second line. On a kernel without vDSO, reading the clock is a system call.
            system_calls += u64::from(!line.starts_with("<...") && !line.starts_with("clock_gettime("));
            calls += u64::from(is_call(line));
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

/// Counts a leg. If `is_enough` rejects the figures, counts again and keeps the least figures.
fn least_of(bin: &Path, leg: &Leg, is_enough: impl Fn(&[(String, Cost)]) -> bool) -> Result<Vec<(String, Cost)>> {
    let mut counted = count(bin, leg)?;
    for _ in 1..ATTEMPTS {
        if is_enough(&counted) {
            break;
        }
        for ((_, least), (_, cost)) in counted.iter_mut().zip(count(bin, leg)?) {
            *least = least.least(cost);
        }
    }
    Ok(counted)
}

/// Returns the first lines of the file.
fn head() -> String {
    let (calls, faults) = (SYSTEM_CALLS, PAGE_FAULTS);
    format!(
        "# The costs of a run of each plugin and verb: system calls, page faults, calls from guest to gate. The test\n\
         # tests/tests/numbers/costs.rs compares runs with this file. It fails if a run has {} % and {} more system calls, {} % and\n\
         # {} more page faults, or one more call. POSTERN_WRITE_COSTS=1 writes this file anew; with tests/vm/kernel it prints the\n\
         # lines of the VM. Page faults depend on the build: these are of the release profile of Cargo.toml.\n",
        calls.0, calls.1, faults.0, faults.1
    )
}

#[test]
fn no_run_costs_more_than_it_did() -> Result<()> {
    let bin = plugin_bin()?;
    let of = |variable| std::env::var(variable).unwrap_or_default();
    let (is_writing, in_vm) = (!of("POSTERN_WRITE_COSTS").is_empty(), of("POSTERN_COSTS_OF"));
    let is_other = is_other_build();
    ensure!(
        !is_writing || !is_other,
        "{FILE} has the figures of the release profile: POSTERN_COSTS_BUILD must not be set"
    );
    if is_other {
        skip_part("page faults", "POSTERN_COSTS_BUILD says that this is another build than the release profile");
    }
    let place = if in_vm.is_empty() { "" } else { IN_VM };
    let expected = expected()?;
    let (mut written, mut beyond) = (Vec::new(), Vec::new());
    for plugin in shipped()?.into_iter().filter(|plugin| in_vm.is_empty() || in_vm.split(' ').any(|one| one == plugin))
    {
        let legs = legs(&plugin)?;
        if legs.is_empty() {
            skip_part(&plugin, &format!("this kernel has no {plugin} links"));
        }
        for leg in legs {
            let key = |verb: &str| (leg.name.clone() + place, verb.to_owned());
            let has_lines = |place: &str| expected.keys().any(|(name, _)| *name == leg.name.clone() + place);
            if place.is_empty() && !has_lines("") && has_lines(IN_VM) {
                skip_part(&plugin, &format!("{FILE} has its figures only for the virtual machine"));
                continue;
            }
            let is_within =
                |(verb, cost): &(String, Cost)| expected.get(&key(verb)).is_some_and(|known| cost.is_within(*known));
            for (verb, cost) in least_of(&bin, &leg, |counted| !is_writing && counted.iter().all(is_within))? {
                let (name, verb) = key(&verb);
                match expected.get(&(name.clone(), verb.clone())) {
                    _ if is_writing => {}
                    Some(known) if cost.is_within(*known) => {}
                    Some(known) => beyond.push(format!("{name} {verb}: expected {known}, counted {cost}")),
                    None => beyond.push(format!("{name} {verb}: {FILE} has no line for it: counted {cost}")),
                }
                written.push(((name, verb), cost));
            }
        }
    }
    ensure!(written.iter().any(|(_, cost)| cost.calls > 0), "the trace shows no call from a guest: see `is_call`");
    if is_writing {
        let is_kept =
            |key: &(String, String)| key.0.ends_with(IN_VM) && !written.iter().any(|(counted, _)| counted == key);
        let others: Vec<_> = expected.into_iter().filter(|(key, _)| is_kept(key)).collect();
        let lines = |costs: &[((String, String), Cost)]| {
            costs.iter().map(|((name, verb), cost)| format!("{name}: {verb:<8}{cost}\n")).collect::<String>()
        };
        match place {
            "" => std::fs::write(FILE, head() + &lines(&written) + &lines(&others)).with_context(|| FILE.to_owned())?,
            _ => println!("lines of {FILE}:\n{}", lines(&written)),
        }
    }
    ensure!(
        beyond.is_empty(),
        "runs cost more system calls, page faults or calls than {FILE} says:\n{}\nIf the cost is necessary, write the file \
         anew with POSTERN_WRITE_COSTS=1, and say in the commit why",
        beyond.join("\n")
    );
    Ok(())
}

/// The count notices the work for rules. CHECK and DEL with iptables exceed the bound of nftables. ADD with rules
/// exceeds the bound of an ADD without rules.
#[test]
fn a_costlier_run_is_beyond_its_bound() -> Result<()> {
    let (bin, legs, expected) = (plugin_bin()?, legs("bridge")?, expected()?);
    let leg = legs.iter().find(|leg| leg.name == "bridge iptables").context("no such leg")?;
    let counted = count(&bin, leg)?;
    // An ADD costs the same with both backends.
    for (verb, other) in [("ADD", "bridge dhcp"), ("CHECK", "bridge nftables"), ("DEL", "bridge nftables")] {
        let (_, cost) = counted.iter().find(|(counted, _)| counted == verb).context("not counted")?;
        let cheaper = expected.get(&(other.to_owned(), verb.to_owned())).context("no line")?;
        ensure!(!cost.is_within(*cheaper), "{verb}: {cost} counts as {cheaper}");
    }
    let expected = Cost { system_calls: 500, page_faults: 400, calls: 9 };
    for (cost, is_within) in [
        (Cost { system_calls: 522, page_faults: 436, ..expected }, true),
        (Cost { system_calls: 523, ..expected }, false),
        (Cost { page_faults: 437, ..expected }, false),
        (Cost { calls: 10, ..expected }, false),
    ] {
        ensure!(cost.is_within(expected) == is_within, "{cost}");
    }
    Ok(())
}

#[test]
fn a_call_is_told_from_other_messages() {
    let calls = [
        r#"sendto(6, "\n\0\0\0\0\5\2\3br0\0\0\0", 14, MSG_NOSIGNAL, NULL, 0 <unfinished ...>"#,
        r#"sendto(7, "\17\0\0\0\0\v\0\1\1\0\n", 19, MSG_NOSIGNAL, NULL, 0) = 19"#,
        r#"sendto(6, "&\0\0\0\0\1", 42, MSG_NOSIGNAL, NULL, 0) = 42"#,
    ];
    let others = [
        r#"sendto(7, "\221\0\0\0\2\215\1{\n    \"cni"..., 149, MSG_NOSIGNAL, NULL, 0) = 149"#,
        r#"sendto(5, "\3\0\0\0\0\0\0", 7, MSG_DONTWAIT|MSG_NOSIGNAL, NULL, 0) = 7"#,
        r#"sendto(15, [{nlmsg_len=48, nlmsg_type=RTM_GETLINK}], 48, 0, {sa_family=AF_NETLINK}, 12) = 48"#,
        r#"sendto(6, "\n\0\0", 3, MSG_NOSIGNAL, NULL, 0) = 3"#,
        "recvfrom(6, ",
    ];
    assert!(calls.iter().all(|line| is_call(line)));
    assert!(!others.iter().any(|line| is_call(line)));
}
