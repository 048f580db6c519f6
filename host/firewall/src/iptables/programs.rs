//! The rules of one table of iptables. If possible, the rules are read and changed over netlink ([`super::netlink`]).
//! Otherwise the system's programs are used: one `iptables-save` to read, one `iptables-restore` to make all changes at
//! once.

use super::prelude::*;
use crate::{is_absence, program};
use postern_confine::{Allowed, Run};
use postern_types::IptablesVariant as Variant;
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Instant;

/// The tables that a helper may change for a gate: the rules of capabilities are only in these tables.
const TABLES: [&str; 2] = [NAT, FILTER];

/// The number of further attempts at a change that failed because another program changed the rules first.
const RETRIES: usize = 3;

/// The runner of programs, and the time that they may take.
#[derive(Clone, Copy)]
pub struct ProgramRunner<'a> {
    /// The process that starts the programs: this process, or a helper.
    pub runner: &'a dyn Run,
    /// The moment when a running program is killed.
    pub deadline: Instant,
    /// The connection to nf_tables in the same network namespace, opened when it is needed. Over this connection,
    /// readable rules of the nf_tables variant are read and changed without `iptables`.
    pub nft: Option<&'a RefCell<Option<Nft>>>,
}

/// Returns the installed programs that this module may run. The first programs make new rules. Unless they belong to
/// legacy iptables, the programs of legacy iptables follow, which remove rules of legacy iptables.
#[must_use]
pub fn programs() -> Vec<Allowed> {
    let of_family = |v6: bool| {
        let of_legacy = (variant::installed(v6) != Some(Variant::Legacy)).then(|| Files::of_legacy(v6).ok()).flatten();
        Files::of_new(v6).ok().into_iter().chain(of_legacy)
    };
    let both = |Files { save, restore }: Files| {
        [
            Allowed { path: save, arguments: is_save, input: str::is_empty, variable: None },
            Allowed { path: restore, arguments: is_restore, input: is_change, variable: None },
        ]
    };
    [false, true].into_iter().flat_map(of_family).flat_map(both).collect()
}

/// The hint if the programs of legacy iptables are missing.
const LEGACY: &str =
    "only the programs of legacy iptables can change the rules in its tables: install these programs again";

const RESTORE: [&str; 2] = ["--noflush", "-w"];

/// True if the input changes only `TABLES` and names no program. iptables would run the program of `--modprobe`.
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

/// True for the arguments that read one of `TABLES`.
fn is_save(arguments: &[String]) -> bool {
    matches!(arguments, [option, table] if option == "-t" && TABLES.contains(&table.as_str()))
}

/// True for the arguments of a change. The last argument is a number of seconds.
fn is_restore(arguments: &[String]) -> bool {
    matches!(arguments, [first, second, seconds] if [first, second] == RESTORE && seconds.parse::<u64>().is_ok())
}

/// The two programs of one family.
struct Files {
    save: PathBuf,
    restore: PathBuf,
}

impl Files {
    /// The programs that make new rules.
    fn of_new(v6: bool) -> Result<Self, FirewallError> {
        Self::named(if v6 { "ip6tables" } else { "iptables" })
    }

    /// The programs of legacy iptables, under any of their names.
    fn of_legacy(v6: bool) -> Result<Self, FirewallError> {
        let named = || Self::named(if v6 { "ip6tables-legacy" } else { "iptables-legacy" });
        let found = match variant::installed(v6) {
            Some(Variant::Legacy) => Self::of_new(v6),
            Some(Variant::Nft) => named(),
            // Programs of an unknown variant may belong to legacy iptables.
            None => named().or_else(|missing| Self::of_new(v6).map_err(|_| missing)),
        };
        found.map_err(|missing| FirewallError { hint: LEGACY.to_owned(), ..missing })
    }

    fn named(name: &str) -> Result<Self, FirewallError> {
        let part = |part: &str| program::locate(&format!("{name}-{part}"));
        Ok(Self { save: part("save")?, restore: part("restore")? })
    }
}

/// The rules of one family in one variant, and the programs that read and change them.
pub(super) struct Programs<'a> {
    pub(super) v6: bool,
    variant: Variant,
    /// The programs, or the error if they are not installed. Rules of nf_tables need no programs.
    files: Result<Files, FirewallError>,
    runner: ProgramRunner<'a>,
}

impl<'a> Programs<'a> {
    /// The place of new rules.
    pub(super) fn locate(v6: bool, runner: ProgramRunner<'a>) -> Result<Self, FirewallError> {
        let files = Ok(Files::of_new(v6)?);
        // If the variant is unknown, only the programs make and read the rules, as for legacy iptables.
        let variant = variant::installed(v6).unwrap_or(Variant::Legacy);
        Ok(Self { v6, variant, files, runner })
    }

    /// The place of rules that are made again: the recorded place, or the place of new rules if the record has none.
    pub(super) fn locate_in(
        noted: Option<Variant>,
        v6: bool,
        runner: ProgramRunner<'a>,
    ) -> Result<Self, FirewallError> {
        match noted {
            None => Self::locate(v6, runner),
            Some(Variant::Nft) => Ok(Self::nft(v6, runner)),
            Some(Variant::Legacy) => {
                let files = Ok(Files::of_legacy(v6)?);
                Ok(Self { v6, variant: Variant::Legacy, files, runner })
            }
        }
    }

    /// The rules in nf_tables, whatever programs are installed.
    pub(super) fn nft(v6: bool, runner: ProgramRunner<'a>) -> Self {
        let others = || Err(FirewallError::new("locate", "iptables", "the programs have another variant"));
        let files = if variant::is_nft(v6) { Files::of_new(v6) } else { others() };
        Self { v6, variant: Variant::Nft, files, runner }
    }

    /// The tables of legacy iptables, whatever programs are installed.
    fn legacy(v6: bool, runner: ProgramRunner<'a>) -> Self {
        Self { v6, variant: Variant::Legacy, files: Files::of_legacy(v6), runner }
    }

    /// Returns the possible places of a table's rules; a record of the rules limits the places. nf_tables is a place if
    /// the kernel has nf_tables. Legacy iptables is a place if the kernel has the legacy table. If the programs of
    /// legacy iptables are not installed, legacy iptables is a place only for recorded rules.
    pub(super) fn places(recorded: Recorded, v6: bool, table: &str, runner: ProgramRunner<'a>) -> Vec<Self> {
        let find_nft = || Some(Self::nft(v6, runner)).filter(Self::is_there);
        let has_table = || variant::has_legacy_table(v6, table);
        let (nft, has_legacy) = match recorded {
            Recorded::In(Variant::Nft) => (find_nft(), false),
            Recorded::In(Variant::Legacy) if has_table() => (None, true),
            // A missing table has no rules. The record may be wrong, because a script counted as legacy iptables.
            Recorded::In(Variant::Legacy) => (find_nft(), false),
            Recorded::Somewhere | Recorded::No => {
                let nft = find_nft();
                let is_alone = nft.as_ref().is_some_and(Self::is_alone);
                (nft, !is_alone && has_table())
            }
        };
        let legacy = has_legacy.then(|| Self::legacy(v6, runner));
        nft.into_iter().chain(legacy.filter(|legacy| recorded != Recorded::No || !legacy.lacks_programs())).collect()
    }

    /// As [`Programs::places`], in both families, for rules of any owner.
    pub(super) fn of_all(table: &str, runner: ProgramRunner<'a>) -> Vec<Self> {
        [false, true].into_iter().flat_map(|v6| Self::places(Recorded::No, v6, table, runner)).collect()
    }

    /// The name of the program that shows and changes these rules.
    pub(super) fn name(&self) -> String {
        let name = if self.v6 { "ip6tables" } else { "iptables" };
        match self.variant {
            variant if variant == variant::installed(self.v6).unwrap_or(Variant::Nft) => name.to_owned(),
            Variant::Nft => format!("{name}-nft"),
            Variant::Legacy => format!("{name}-legacy"),
        }
    }

    /// True if only the programs of legacy iptables can read and change these rules.
    pub(super) fn is_legacy(&self) -> bool {
        self.variant == Variant::Legacy
    }

    /// True if the programs that these rules need are not installed.
    fn lacks_programs(&self) -> bool {
        self.is_legacy() && self.files.is_err()
    }

    /// True if the kernel has nf_tables. If programs for nf_tables are installed, the kernel is not asked.
    fn is_there(&self) -> bool {
        if self.files.is_ok() {
            return true;
        }
        let is_there = self.with_nft(|nft| Ok(!nft.is_absent()));
        !matches!(is_there, Ok(false)) && !is_there.is_err_and(|error| error.errno.is_some_and(is_absence))
    }

    /// True if nf_tables has all rules of this family, and the programs are of the nf_tables variant.
    fn is_alone(&self) -> bool {
        self.files.is_ok() && self.without(|_| Ok(())).is_some()
    }

    /// True if foreign rules that only `iptables-save` can read are left out.
    fn is_lenient(&self) -> bool {
        self.files.is_err() || !self.runner.runner.can_start()
    }

    /// Reads at least the part of a table that `scope` names.
    pub(super) fn look(&self, scope: &Scope<'_>) -> Result<SavedTable, FirewallError> {
        self.seen(scope, |nft| netlink::look(nft, self.v6, scope, self.is_lenient()))
    }

    /// As [`Programs::look`]. Unchanged rules that this run has read before are not read again.
    pub(super) fn look_once(&self, scope: &Scope<'_>) -> Result<SavedTable, FirewallError> {
        self.seen(scope, |nft| nft.look(|nft| netlink::look(nft, self.v6, scope, self.is_lenient())))
    }

    fn seen(
        &self,
        scope: &Scope<'_>,
        look: impl FnOnce(&mut Nft) -> Result<SavedTable, FirewallError>,
    ) -> Result<SavedTable, FirewallError> {
        match self.without(look) {
            Some(Ok(saved)) => Ok(saved),
            Some(Err(error)) if error.is_timeout() || self.is_lenient() => Err(error),
            _ => self.printed(scope.table),
        }
    }

    fn files(&self) -> Result<&Files, FirewallError> {
        self.files.as_ref().map_err(FirewallError::clone)
    }

    fn printed(&self, table: &str) -> Result<SavedTable, FirewallError> {
        let text = program::run(self.runner.runner, &self.files()?.save, &["-t", table], "", self.runner.deadline)?;
        Ok(SavedTable::parse(&text))
    }

    /// Calls `act`, which reads or changes the rules over netlink. Returns `None` in three cases: the variant is legacy
    /// iptables, some rules may be outside of nf_tables, or the caller has no free connection. For nf_tables without
    /// installed programs, `act` is always called, because there is no other way.
    pub(super) fn without<T>(
        &self,
        act: impl FnOnce(&mut Nft) -> Result<T, FirewallError>,
    ) -> Option<Result<T, FirewallError>> {
        if self.is_legacy() {
            return None;
        }
        if self.files.is_err() {
            return Some(self.with_nft(act));
        }
        // The caller may be using the connection.
        let mut shared = self.runner.nft?.try_borrow_mut().ok()?;
        if shared.is_none() {
            // A node with legacy iptables may have no nf_tables at all, so no connection is opened.
            let serves = variant::serves(self.v6).filter(|serves| *serves)?;
            *shared.insert(Nft::open(self.runner.deadline).ok()?).variant(self.v6) = Some(serves);
        }
        let nft = shared.as_mut()?;
        nft.set_deadline(self.runner.deadline);
        nft.serves_iptables(self.v6).then(|| act(nft))
    }

    /// Calls `act` with the run's connection to nf_tables, or with a new connection.
    fn with_nft<T>(&self, act: impl FnOnce(&mut Nft) -> Result<T, FirewallError>) -> Result<T, FirewallError> {
        let deadline = self.runner.deadline;
        let Some(mut shared) = self.runner.nft.and_then(|nft| nft.try_borrow_mut().ok()) else {
            return act(&mut Nft::open(deadline)?);
        };
        let nft = match &mut *shared {
            Some(nft) => nft,
            none => none.insert(Nft::open(deadline)?),
        };
        nft.set_deadline(deadline);
        act(nft)
    }

    /// Makes all changes that `plan` finds necessary, or no change. After a failure, `plan` is called again: usually
    /// another program has just made or removed the same rules. `plan` gets at least the part of the table that
    /// `scope` names.
    ///
    /// Returns the number of changes, and the handles of the new rules that lead to the owners' chains. If a program
    /// made the rules, the list of handles is empty.
    pub(super) fn change(
        &self,
        scope: &Scope<'_>,
        plan: impl Fn(&SavedTable) -> Vec<TableChange>,
    ) -> Result<(usize, Vec<u64>), FirewallError> {
        let table = scope.table;
        let lenient = self.is_lenient();
        match self.without(|nft| netlink::change(nft, self.v6, scope, lenient, &plan)) {
            Some(Ok(made)) => return Ok(made),
            Some(Err(error)) if error.is_timeout() || lenient => return Err(error),
            _ => {}
        }
        let mut attempt = 0;
        loop {
            let changes = plan(&self.printed(table)?);
            if changes.is_empty() {
                return Ok((0, Vec::new()));
            }
            let lines: String = changes.iter().map(|change| format!("{change}\n")).collect();
            let input = format!("*{table}\n{lines}COMMIT\n");
            // `-w` waits for the lock of legacy iptables. The deadline ends the wait in any case.
            let ProgramRunner { runner, deadline, .. } = self.runner;
            let seconds = deadline.saturating_duration_since(Instant::now()).as_secs().max(1);
            let wait = seconds.to_string();
            let [noflush, lock] = RESTORE;
            let outcome = program::run(runner, &self.files()?.restore, &[noflush, lock, &wait], &input, deadline);
            attempt += 1;
            match outcome {
                Ok(_) => return Ok((changes.len(), Vec::new())),
                Err(error) if error.is_timeout() || attempt > RETRIES => return Err(error),
                Err(_) => {}
            }
        }
    }
}

/// True if rules can be made with iptables here. Only IPv4 is tested, as in the native plugins. A program is started
/// only if the variant is legacy iptables and the kernel has no legacy tables yet.
#[must_use]
pub fn available(runner: ProgramRunner<'_>) -> bool {
    let Ok(programs) = Programs::locate(false, runner) else { return false };
    // The run's connection may know the variant already.
    if let Some(answer) = programs.without(|nft| nft.generation()) {
        return answer.is_ok();
    }
    if !programs.is_legacy() {
        return Nft::usable(runner.deadline).is_some();
    }
    variant::legacy_tables(false).is_some_and(|tables| !tables.is_empty()) || programs.look(&Scope::whole(NAT)).is_ok()
}

/// True if iptables can be used here: the programs are installed, and the kernel answers the programs. Only IPv4 is
/// tested, as in the native plugins.
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
    [false, true].map(|v6| Files::of_new(v6).is_ok())
}

/// Checks that recorded rules of these addresses can be read and removed: rules of the firewall plugin (`is_filter`),
/// or masquerading and forwards.
///
/// # Errors
/// The rules can be in a table of legacy iptables, and the programs of legacy iptables are not installed.
pub fn in_reach(
    variant: Option<Variant>,
    addrs: &[IpNet],
    is_filter: bool,
    runner: ProgramRunner<'_>,
) -> Result<(), FirewallError> {
    let table = if is_filter { FILTER } else { NAT };
    by_family(addrs).try_for_each(|(v6, _)| {
        let places = Programs::places(Recorded::of(variant), v6, table, runner);
        places.iter().filter(|place| place.is_legacy()).try_for_each(|place| place.files().map(drop))
    })
}

/// True if one possible place has all rules. The rules' record limits the possible places.
pub(super) fn in_any(
    recorded: Recorded,
    v6: bool,
    table: &str,
    runner: ProgramRunner<'_>,
    mut check: impl FnMut(&Programs<'_>) -> Result<bool, FirewallError>,
) -> Result<bool, FirewallError> {
    for place in Programs::places(recorded, v6, table, runner) {
        if check(&place)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes rules from each possible place. The rules' record limits the possible places. Returns the number of changes.
///
/// If the record does not say where the rules are, all of them are in the same place. So after the rules were found, a
/// place whose programs are missing is ignored.
pub(super) fn remove_from_each(
    recorded: Recorded,
    v6: bool,
    table: &str,
    runner: ProgramRunner<'_>,
    mut remove: impl FnMut(&Programs<'_>) -> Result<usize, FirewallError>,
) -> Result<usize, FirewallError> {
    let mut changes = 0;
    for place in Programs::places(recorded, v6, table, runner) {
        if changes == 0 || !place.lacks_programs() {
            changes += remove(&place)?;
        }
    }
    Ok(changes)
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
