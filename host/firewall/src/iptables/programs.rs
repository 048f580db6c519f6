//! The rules of one table of iptables: read and changed without a program where that is possible ([`super::netlink`]), or
//! else by the system's programs: one `iptables-save` to read, one `iptables-restore` to make all changes at once.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Instant;

use postern_confine::{Allowed, Rules, Run};

use super::netlink::{self, Unable};
use super::saved::SavedTable;
use super::scope::Scope;
use super::variant;
use crate::program;
use crate::{FirewallError, Nft};

/// The tables that a helper may change for a gate: those in which a capability has rules.
const TABLES: [&str; 2] = [super::NAT, super::FILTER];

/// The number of new plans for a change that failed, because another program changed the rules first.
const RETRIES: usize = 3;

/// The runner of programs, and the time that they may take.
#[derive(Clone, Copy)]
pub struct ProgramRunner<'a> {
    /// The process that starts the programs: this one, or a helper.
    pub runner: &'a dyn Run,
    /// The moment when a running program is killed.
    pub deadline: Instant,
    /// The connection to nf_tables, of the same network namespace. With it, no program is started where iptables is the
    /// nf_tables variant and its rules can be read and written without. It is opened when it is needed.
    pub nft: Option<&'a RefCell<Option<Nft>>>,
}

/// Returns the programs that this module may run, if they are installed.
#[must_use]
pub fn programs() -> Vec<Allowed> {
    let save = Rules { arguments: is_save, input: str::is_empty, variable: None };
    let restore = Rules { arguments: is_restore, input: is_change, variable: None };
    let names = [
        ("iptables-save", save),
        ("iptables-restore", restore),
        ("ip6tables-save", save),
        ("ip6tables-restore", restore),
    ];
    names.into_iter().filter_map(|(name, rules)| Some(Allowed { path: program::locate(name).ok()?, rules })).collect()
}

const RESTORE: [&str; 2] = ["--noflush", "-w"];

/// True if the input changes one of these tables and names no program. iptables would run the program of `--modprobe`.
fn is_change(input: &str) -> bool {
    input.lines().all(|line| {
        let mut words = line.split_whitespace();
        match words.next() {
            None | Some("COMMIT") => words.next().is_none(),
            Some(word) if word.strip_prefix('*').is_some_and(|table| TABLES.contains(&table)) => words.next().is_none(),
            Some("-A" | "-I" | "-D" | "-N" | "-X" | "-F") => !words.any(|word| {
                word.starts_with("-M")
                    || word.starts_with("--m") && "--modprobe".starts_with(word.split('=').next().unwrap_or(word))
            }),
            Some(_) => false,
        }
    })
}

/// True for the arguments that read one of these tables.
fn is_save(arguments: &[String]) -> bool {
    matches!(arguments, [option, table] if option == "-t" && TABLES.contains(&table.as_str()))
}

/// True for the arguments of a change. The last one is a number of seconds.
fn is_restore(arguments: &[String]) -> bool {
    matches!(arguments, [first, second, seconds] if [first, second] == RESTORE && seconds.parse::<u64>().is_ok())
}

/// The programs of one family.
pub(super) struct Programs<'a> {
    pub(super) v6: bool,
    save: PathBuf,
    restore: PathBuf,
    runner: ProgramRunner<'a>,
}

impl<'a> Programs<'a> {
    pub(super) fn locate(v6: bool, runner: ProgramRunner<'a>) -> Result<Self, FirewallError> {
        let name = if v6 { "ip6tables" } else { "iptables" };
        Ok(Self {
            v6,
            save: program::locate(&format!("{name}-save"))?,
            restore: program::locate(&format!("{name}-restore"))?,
            runner,
        })
    }

    pub(super) fn look(&self, table: &str) -> Result<SavedTable, FirewallError> {
        self.look_around(table, &Scope::whole())
    }

    /// Reads at least the part of a table that a question is about.
    pub(super) fn look_around(&self, table: &str, scope: &Scope<'_>) -> Result<SavedTable, FirewallError> {
        self.seen(table, |nft| netlink::look(nft, self.v6, table, scope, !self.runner.runner.can_start()))
    }

    fn seen(
        &self,
        table: &str,
        look: impl FnOnce(&mut Nft) -> Result<SavedTable, Unable>,
    ) -> Result<SavedTable, FirewallError> {
        match self.without(look) {
            Some(Ok(saved)) => Ok(saved),
            Some(Err(Unable(error))) if error.is_timeout() || !self.runner.runner.can_start() => Err(error),
            _ => self.printed(table),
        }
    }

    /// As [`Programs::look_around`]. What this run has read of the same rules is not read again.
    pub(super) fn look_once(&self, table: &str, scope: &Scope<'_>) -> Result<SavedTable, FirewallError> {
        self.seen(table, |nft| {
            nft.look(|nft| netlink::look(nft, self.v6, table, scope, !self.runner.runner.can_start()))
        })
    }

    fn printed(&self, table: &str) -> Result<SavedTable, FirewallError> {
        let text = program::run(self.runner.runner, &self.save, &["-t", table], "", self.runner.deadline)?;
        Ok(SavedTable::parse(&text))
    }

    /// Does something without a program. `None` if iptables is not the nf_tables variant here, or the caller has no
    /// connection.
    pub(super) fn without<T>(&self, act: impl FnOnce(&mut Nft) -> Result<T, Unable>) -> Option<Result<T, Unable>> {
        // The caller may be using the connection.
        let mut nft = self.runner.nft?.try_borrow_mut().ok()?;
        let nft = match &mut *nft {
            Some(nft) => {
                nft.set_deadline(self.runner.deadline);
                nft
            }
            // A node with legacy iptables may have no nf_tables at all, and is not asked for them.
            none => {
                let serves = variant::serves(self.v6).filter(|serves| *serves)?;
                let nft = none.insert(Nft::open(self.runner.deadline).ok()?);
                nft.note_variant(self.v6, serves);
                nft
            }
        };
        nft.serves_iptables(self.v6).then(|| act(nft))
    }

    /// Makes the changes that `plan` finds necessary, all or none. It plans again if they fail: the usual cause is that
    /// another program has just made or removed the same.
    pub(super) fn change(
        &self,
        table: &str,
        plan: impl Fn(&SavedTable) -> Vec<String>,
    ) -> Result<usize, FirewallError> {
        self.change_around(table, &Scope::whole(), plan).map(|(count, _)| count)
    }

    /// As [`Programs::change`], for a plan that looks at a part of the table only. It also returns the handles of the new
    /// rules that lead to the owners' chains; none if a program made them.
    pub(super) fn change_around(
        &self,
        table: &str,
        scope: &Scope<'_>,
        plan: impl Fn(&SavedTable) -> Vec<String>,
    ) -> Result<(usize, Vec<u64>), FirewallError> {
        let lenient = !self.runner.runner.can_start();
        match self.without(|nft| netlink::change(nft, self.v6, table, scope, lenient, &plan)) {
            Some(Ok(made)) => return Ok(made),
            Some(Err(Unable(error))) if error.is_timeout() || lenient => return Err(error),
            _ => {}
        }
        let mut attempt = 0;
        loop {
            let changes = plan(&self.printed(table)?);
            if changes.is_empty() {
                return Ok((0, Vec::new()));
            }
            let input = format!("*{table}\n{}\nCOMMIT\n", changes.join("\n"));
            // `-w` waits for the lock that legacy iptables takes. Our own deadline ends the wait in any case.
            let ProgramRunner { runner, deadline, .. } = self.runner;
            let seconds = deadline.saturating_duration_since(Instant::now()).as_secs().max(1);
            let wait = seconds.to_string();
            let [noflush, lock] = RESTORE;
            let outcome = program::run(runner, &self.restore, &[noflush, lock, &wait], &input, deadline);
            attempt += 1;
            match outcome {
                Ok(_) => return Ok((changes.len(), Vec::new())),
                Err(error) if error.is_timeout() || attempt > RETRIES => return Err(error),
                Err(_) => {}
            }
        }
    }
}

/// True if rules can be made with iptables here. Only IPv4 is asked, as the native plugins do. A program is started only
/// where its tables would be those of legacy iptables, and there are none yet.
#[must_use]
pub fn available(runner: ProgramRunner<'_>) -> bool {
    let Ok(programs) = Programs::locate(false, runner) else { return false };
    // The run's connection may know the variant already.
    if let Some(answer) = programs.without(|nft| nft.generation().map_err(Unable)) {
        return answer.is_ok();
    }
    if variant::is_nft(false) {
        return Nft::usable(runner.deadline);
    }
    variant::legacy_tables(false).is_some_and(|tables| !tables.is_empty()) || programs.look(super::NAT).is_ok()
}

/// True if iptables can be used here: the programs are installed, and the kernel answers them. Only IPv4 is tested, as
/// the native plugins do.
#[must_use]
pub fn usable(runner: ProgramRunner<'_>) -> bool {
    Programs::locate(false, runner).is_ok()
        && program::locate("iptables")
            .and_then(|path| program::run(runner.runner, &path, &["-t", "filter", "-S", "INPUT"], "", runner.deadline))
            .is_ok()
}

/// True if the programs are installed, for IPv4 and for IPv6.
#[must_use]
pub fn installed() -> [bool; 2] {
    ["iptables", "ip6tables"]
        .map(|name| ["save", "restore"].iter().all(|part| program::locate(&format!("{name}-{part}")).is_ok()))
}

/// Returns the error to report for rules of a family that has no programs.
#[must_use]
pub fn missing(v6: bool) -> FirewallError {
    let name = if v6 { "ip6tables-restore" } else { "iptables-restore" };
    program::locate(name)
        .err()
        .unwrap_or_else(|| FirewallError::new("locate", name, "it was not there a moment ago: try again"))
}

/// Returns the installed programs. One family may miss them, but not both.
pub(super) fn families(runner: ProgramRunner<'_>) -> Result<Vec<Programs<'_>>, FirewallError> {
    match (Programs::locate(false, runner), Programs::locate(true, runner)) {
        (Err(error), Err(_)) => Err(error),
        (v4, v6) => Ok(v4.into_iter().chain(v6).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_runs_what_this_asks_for_and_no_program_besides() {
        let change = "*nat\n-N CNI-1\n-A CNI-1 -d 10.1.0.0/16 -m comment --comment \"name: \\\"n\\\" id: \\\"c\\\"\" -j ACCEPT\nCOMMIT\n";
        assert!(is_change(change) && is_change("") && is_change("*nat\n-F CNI-1\n-X CNI-1\nCOMMIT"));
        for evil in
            ["*raw", "*nat\n-P INPUT DROP", "-A X -M /tmp/x", "-A X -M/tmp/x", "-A X --modprobe=/tmp/x", "-A X --mo /x"]
        {
            assert!(!is_change(evil), "{evil}");
        }
        assert!(is_save(&["-t".to_owned(), "nat".to_owned()]));
        for evil in [&["-t", "raw"][..], &["-t"], &["-t", "nat", "-M"], &["-f", "nat"]] {
            assert!(!is_save(&evil.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()), "{evil:?}");
        }
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(is_restore(&words(&["--noflush", "-w", "5"])));
        for evil in [&["--noflush", "-w", "x"][..], &["--noflush", "-w"], &["-w", "--noflush", "5"], &[]] {
            assert!(!is_restore(&words(evil)), "{evil:?}");
        }
    }
}
