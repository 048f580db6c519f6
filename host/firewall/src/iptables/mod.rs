//! Masquerading of an attachment's addresses (`ipMasq`) with the system's iptables.
//!
//! Chain, rules and comments are the native plugins' own, so that either side finds and removes what the other made.
//! In table `nat` of the address's family:
//!
//! ```text
//! -A POSTROUTING -s <address> -j CNI-<hash>           one per address
//! -A CNI-<hash> -d <the address's network> -j ACCEPT
//! -A CNI-<hash> ! -d <multicast> -j MASQUERADE
//! ```
//!
//! The chain belongs to container and network: attachments of one container to one network share it. So it goes with
//! the last rule that refers to it, not before.
//!
//! Its name is a hash of the two run together, so that network `net` with container `1abc` and network `net1` with
//! container `abc` have one name. Who comes first has it; the other takes a chain whose name can't run together.
//!
//! Each call costs one `iptables-save` per family and, if there is something to change, one `iptables-restore`, which
//! makes all changes at once.

pub(crate) mod saved;

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Instant;

use ipnet::IpNet;
use netlink_packet_netfilter::NetfilterProtoFamily;
use postern_confine::{Allowed, Rules, Run};

use crate::account::{Marked, gather};
use crate::masquerade::{MULTICAST_V4, MULTICAST_V6};
use crate::nft::batch::Table;
use crate::program;
use crate::{FirewallError, MasqueradeKey, Nft};
use saved::{Rule, SavedRule, SavedTable};

const POSTROUTING: &str = "POSTROUTING";
const CHAIN_PREFIX: &str = "CNI-";

/// How often a change that another program was faster with is planned again.
const RETRIES: usize = 3;

/// Who runs the programs, and how long they may take.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    /// This process, or a helper.
    pub runner: &'a dyn Run,
    /// When a program is killed.
    pub deadline: Instant,
}

/// The programs that this may run, as far as they are installed.
#[must_use]
pub fn programs() -> Vec<Allowed> {
    let save = Rules { arguments: |given| given == SAVE, input: str::is_empty, variable: None };
    let restore = Rules { arguments: is_restore, input: is_change, variable: None };
    let names = [
        ("iptables-save", save),
        ("iptables-restore", restore),
        ("ip6tables-save", save),
        ("ip6tables-restore", restore),
    ];
    names.into_iter().filter_map(|(name, rules)| Some(Allowed { path: program::locate(name).ok()?, rules })).collect()
}

const SAVE: [&str; 2] = ["-t", "nat"];
const RESTORE: [&str; 2] = ["--noflush", "-w"];

/// Changes of table `nat`, line by line, that name no program: iptables runs the one of `--modprobe`.
fn is_change(input: &str) -> bool {
    input.lines().all(|line| {
        let mut words = line.split_whitespace();
        match words.next() {
            None | Some("*nat" | "COMMIT") => words.next().is_none(),
            Some("-A" | "-I" | "-D" | "-N" | "-X" | "-F") => !words.any(|word| {
                word.starts_with("-M")
                    || word.starts_with("--m") && "--modprobe".starts_with(word.split('=').next().unwrap_or(word))
            }),
            Some(_) => false,
        }
    })
}

/// The arguments of a change, the last of which is a number of seconds.
fn is_restore(arguments: &[String]) -> bool {
    matches!(arguments, [first, second, seconds] if [first, second] == RESTORE && seconds.parse::<u64>().is_ok())
}

/// One family's programs.
struct Programs<'a> {
    v6: bool,
    save: PathBuf,
    restore: PathBuf,
    means: Means<'a>,
}

impl<'a> Programs<'a> {
    fn locate(v6: bool, means: Means<'a>) -> Result<Self, FirewallError> {
        let name = if v6 { "ip6tables" } else { "iptables" };
        Ok(Self {
            v6,
            save: program::locate(&format!("{name}-save"))?,
            restore: program::locate(&format!("{name}-restore"))?,
            means,
        })
    }

    fn look(&self) -> Result<SavedTable, FirewallError> {
        let Means { runner, deadline } = self.means;
        let text = program::run(runner, &self.save, &SAVE, "", deadline)?;
        Ok(SavedTable::parse(&text))
    }

    /// Makes the changes that `plan` finds necessary, all or none. It plans again if they fail: the usual cause is
    /// that somebody else has just made (or removed) the same.
    fn change(&self, plan: impl Fn(&SavedTable) -> Vec<String>) -> Result<usize, FirewallError> {
        let mut attempt = 0;
        loop {
            let changes = plan(&self.look()?);
            if changes.is_empty() {
                return Ok(0);
            }
            let input = format!("*nat\n{}\nCOMMIT\n", changes.join("\n"));
            // The wait is for the lock that legacy iptables takes; our own deadline ends it in any case.
            let Means { runner, deadline } = self.means;
            let seconds = deadline.saturating_duration_since(Instant::now()).as_secs().max(1);
            let wait = seconds.to_string();
            let [noflush, lock] = RESTORE;
            let outcome = program::run(runner, &self.restore, &[noflush, lock, &wait], &input, deadline);
            attempt += 1;
            match outcome {
                Ok(_) => return Ok(changes.len()),
                Err(error) if error.is_timeout() || attempt > RETRIES => return Err(error),
                Err(_) => {}
            }
        }
    }
}

/// The names and rules of one attachment.
struct Wanted {
    chain: String,
    comment: String,
}

impl Wanted {
    /// By the native plugins' name, and by the one for who finds that taken.
    fn new(key: &MasqueradeKey) -> Result<[Self; 2], FirewallError> {
        let comment = key.iptables_comment()?;
        Ok(key.iptables_chains().map(|chain| Self { chain, comment: comment.clone() }))
    }

    /// The one of the two that is the attachment's in this table: the native one, unless rules of another's are there.
    fn choose<'a>([native, own]: &'a [Self; 2], table: &SavedTable) -> &'a Self {
        let leads = |wanted: &Self, saved: &SavedRule| saved.rule.target.as_ref() == Some(&wanted.chain);
        let is_ours = |saved: &SavedRule| saved.rule.comment.as_ref() == Some(&native.comment);
        let taken = table.rules.iter().any(|saved| leads(native, saved) && !is_ours(saved));
        let has = table.rules.iter().any(|saved| leads(own, saved));
        if taken || has { own } else { native }
    }

    /// The changes that remove the rules of both for which `goes` holds.
    fn all_removals(both: &[Self; 2], table: &SavedTable, goes: impl Fn(&Rule) -> bool) -> Vec<String> {
        both.iter().flat_map(|wanted| wanted.removals(table, &goes)).collect()
    }

    fn rule(&self, chain: &str, target: &str) -> Rule {
        Rule {
            chain: chain.to_owned(),
            comment: Some(self.comment.clone()),
            target: Some(target.to_owned()),
            ..Rule::default()
        }
    }

    fn jump(&self, source: IpNet) -> Rule {
        Rule { source: Some(source), ..self.rule(POSTROUTING, &self.chain) }
    }

    fn accept(&self, address: IpNet) -> Rule {
        Rule { destination: Some((true, address.trunc())), ..self.rule(&self.chain, "ACCEPT") }
    }

    fn masquerade(&self, v6: bool) -> Rule {
        let multicast = if v6 { MULTICAST_V6 } else { MULTICAST_V4 };
        Rule { destination: Some((false, multicast)), ..self.rule(&self.chain, "MASQUERADE") }
    }

    /// The changes that make `addrs` masqueraded.
    fn additions(&self, table: &SavedTable, v6: bool, addrs: &[IpNet]) -> Vec<String> {
        let mut changes: Vec<String> = Vec::new();
        let mut change = |line| {
            if !changes.contains(&line) {
                changes.push(line);
            }
        };
        if !table.chains.contains(&self.chain) {
            change(format!("-N {}", self.chain));
        }
        let masquerade = self.masquerade(v6);
        let masqueraded = table.has(&masquerade);
        for address in addrs {
            let accept = self.accept(*address);
            if !table.has(&accept) {
                // Accepting comes before masquerading, or a second network's own traffic would be masqueraded.
                change(format!("{} {}", if masqueraded { "-I" } else { "-A" }, accept.line()));
            }
        }
        if !masqueraded {
            change(format!("-A {}", masquerade.line()));
        }
        for address in addrs {
            let jump = self.jump(address.addr().into());
            if !table.has(&jump) {
                change(format!("-A {}", jump.line()));
            }
        }
        changes
    }

    /// The changes that remove the rules for which `goes` holds, and the chain if nothing else refers to it.
    fn removals(&self, table: &SavedTable, goes: impl Fn(&Rule) -> bool) -> Vec<String> {
        let mut changes = Vec::new();
        let mut referenced = false;
        for saved in &table.rules {
            if saved.rule.target.as_ref() != Some(&self.chain) {
                continue;
            }
            if goes(&saved.rule) {
                changes.push(format!("-D {}", saved.line));
            } else {
                referenced = true;
            }
        }
        if !referenced && table.chains.contains(&self.chain) {
            changes.push(format!("-F {}", self.chain));
            changes.push(format!("-X {}", self.chain));
        }
        changes
    }
}

/// Whether rules can be named after `key`: asked before it is written down that they will be made.
///
/// # Errors
/// Network and container are too long together for a comment.
pub fn validate(key: &MasqueradeKey) -> Result<(), FirewallError> {
    key.iptables_comment().map(drop)
}

/// Whether iptables can be used here: the programs are installed, and the kernel answers them. IPv4 only, as the
/// native plugins test it.
#[must_use]
pub fn usable(means: Means<'_>) -> bool {
    Programs::locate(false, means).is_ok()
        && program::locate("iptables")
            .and_then(|path| program::run(means.runner, &path, &["-t", "filter", "-S", "INPUT"], "", means.deadline))
            .is_ok()
}

/// Makes sure that traffic from each address to outside its network is masqueraded. `addrs` are host addresses with
/// their network's prefix length.
///
/// # Errors
/// A name doesn't fit, a program is missing or fails, or the deadline passes.
pub fn ensure(key: &MasqueradeKey, addrs: &[IpNet], means: Means<'_>) -> Result<(), FirewallError> {
    let wanted = Wanted::new(key)?;
    for (v6, addrs) in by_family(addrs) {
        Programs::locate(v6, means)?.change(|table| Wanted::choose(&wanted, table).additions(table, v6, &addrs))?;
    }
    Ok(())
}

/// Whether all that [`ensure`] makes is there.
///
/// # Errors
/// As [`ensure`].
pub fn check(key: &MasqueradeKey, addrs: &[IpNet], means: Means<'_>) -> Result<bool, FirewallError> {
    let Ok(wanted) = Wanted::new(key) else { return Ok(addrs.is_empty()) };
    for (v6, addrs) in by_family(addrs) {
        let table = Programs::locate(v6, means)?.look()?;
        if !Wanted::choose(&wanted, &table).additions(&table, v6, &addrs).is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes the masquerading of these addresses, and the container's chain unless another attachment uses it. Returns
/// how many changes that took.
///
/// # Errors
/// As [`ensure`]; a family whose programs are missing is passed over, unless both are. That nothing is there, or can be there
/// as no rules can have the name, is no error.
pub fn remove(key: &MasqueradeKey, addrs: &[IpNet], means: Means<'_>) -> Result<usize, FirewallError> {
    let Ok(wanted) = Wanted::new(key) else { return Ok(0) };
    let mut changes = 0;
    for (v6, addrs) in by_family(addrs) {
        let goes = |rule: &Rule| {
            addrs.iter().any(|address| {
                // Old releases of the native plugins wrote the source with its network's prefix length.
                wanted
                    .iter()
                    .any(|wanted| *rule == wanted.jump(address.addr().into()) || *rule == wanted.jump(address.trunc()))
            })
        };
        match Programs::locate(v6, means) {
            Ok(programs) => changes += programs.change(|table| Wanted::all_removals(&wanted, table, goes))?,
            Err(error) if Programs::locate(!v6, means).is_err() => return Err(error),
            // Nobody could make rules of this family here.
            Err(_) => {}
        }
    }
    Ok(changes)
}

/// Removes the masquerading of all attachments of the container to the network, whatever their addresses but those of
/// `spared`, in both families. Returns how many changes that took.
///
/// # Errors
/// As [`ensure`]; a family whose programs are missing is passed over, unless both are.
pub fn remove_all(key: &MasqueradeKey, spared: &[IpAddr], means: Means<'_>) -> Result<usize, FirewallError> {
    let Ok(wanted) = Wanted::new(key) else { return Ok(0) };
    // All that bears our mark goes; what another's rule refers to stays.
    let goes = |rule: &Rule| {
        rule.chain == POSTROUTING
            && wanted.iter().any(|wanted| rule.comment.as_ref() == Some(&wanted.comment))
            && !rule.source.is_some_and(|source| spared.contains(&source.addr()))
    };
    let mut changes = 0;
    for programs in families(means)? {
        changes += programs.change(|table| Wanted::all_removals(&wanted, table, goes))?;
    }
    Ok(changes)
}

/// Removes the masquerading of all containers in `network` except those with a valid or busy container ID, in both families,
/// and returns the removed container IDs. Who is busy is asked only if there is something to remove, and after the rules were
/// read, as by [`crate::masquerade::nft_retain`].
///
/// # Errors
/// As [`remove_all`].
pub fn retain(
    network: &str,
    valid: &[(String, String)],
    busy: impl Fn() -> Result<Vec<(String, String)>, FirewallError>,
    means: Means<'_>,
) -> Result<Vec<String>, FirewallError> {
    let valid: HashSet<&str> = valid.iter().map(|(container_id, _)| container_id.as_str()).collect();
    let mut removed: Vec<String> = Vec::new();
    for programs in families(means)? {
        let rules = programs.look()?.rules;
        let containers: BTreeSet<String> =
            rules.iter().filter_map(|saved| container_of(&saved.rule, network)).collect();
        let mut stale: Vec<String> = containers.into_iter().filter(|id| !valid.contains(id.as_str())).collect();
        if !stale.is_empty() {
            let busy = busy()?;
            stale.retain(|id| !busy.iter().any(|(busy, _)| busy == id) && !removed.contains(id));
        }
        removed.extend(stale);
    }
    for container_id in &removed {
        let key =
            MasqueradeKey { network: network.to_owned(), container_id: container_id.clone(), ifname: String::new() };
        remove_all(&key, &[], means)?;
    }
    Ok(removed)
}

/// The rule that begins the masquerading of a container's traffic, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whose traffic: one address or, of old releases of the native plugins, its whole network.
    pub source: IpNet,
    /// The container and its network; no interface.
    pub key: MasqueradeKey,
}

impl Seen {
    fn read(rule: &Rule) -> Option<Self> {
        let key = key_of(rule)?;
        let seen = Self { source: rule.source?, key };
        Wanted::new(&seen.key).ok()?.iter().any(|wanted| wanted.jump(seen.source) == *rule).then_some(seen)
    }

    /// Its comment.
    #[must_use]
    pub fn mark(&self) -> String {
        self.key.iptables_comment().unwrap_or_default()
    }
}

/// The rules that begin the masquerading of all containers, in both families, whoever made them. Changes nothing.
///
/// # Errors
/// As [`remove_all`].
pub fn list(means: Means<'_>) -> Result<Vec<Seen>, FirewallError> {
    let Tables(tables) = Tables::look(means)?;
    let rules = tables.iter().flat_map(|(_, table)| &table.rules);
    Ok(rules.filter_map(|saved| Seen::read(&saved.rule)).collect())
}

/// Removes these rules, with the chains to which no others lead. Returns how many changes that took.
///
/// # Errors
/// As [`remove_all`].
pub fn remove_seen(seen: &[Seen], means: Means<'_>) -> Result<usize, FirewallError> {
    let mut keys: Vec<&MasqueradeKey> = Vec::new();
    for Seen { key, .. } in seen {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let wanted: Vec<Wanted> = keys.into_iter().filter_map(|key| Wanted::new(key).ok()).flatten().collect();
    let goes = |rule: &Rule| Seen::read(rule).is_some_and(|rule| seen.contains(&rule));
    let mut changes = 0;
    for programs in families(means)? {
        // A chain without any of these rules is not looked after here: it may be the beginning of another's work.
        let leads = |table: &SavedTable, chain: &str| {
            table.rules.iter().any(|saved| saved.rule.target.as_deref() == Some(chain) && goes(&saved.rule))
        };
        changes += programs.change(|table| {
            let leading = wanted.iter().filter(|wanted| leads(table, &wanted.chain));
            leading.flat_map(|wanted| wanted.removals(table, goes)).collect()
        })?;
    }
    Ok(changes)
}

/// Whether masquerading by iptables may be there for this container and network. Where it says no, which takes
/// microseconds, [`remove`] would find nothing, which takes programs and milliseconds.
///
/// It says yes whenever the kernel has a `nat` table of legacy iptables, into which there is no other look.
///
/// # Errors
/// The kernel refuses to show its nftables, or the deadline passes.
pub fn may_exist(nft: &mut Nft, key: &MasqueradeKey) -> Result<bool, FirewallError> {
    Ok(has_legacy_nat() || chains(nft, key)?.contains(&true))
}

/// Whether there is a chain of this container and network, in IPv4 and in IPv6, as far as iptables works by nftables.
///
/// # Errors
/// As [`may_exist`].
pub fn chains(nft: &mut Nft, key: &MasqueradeKey) -> Result<[bool; 2], FirewallError> {
    let chains = key.iptables_chains();
    let mut seen = [false; 2];
    for (family, seen) in [NetfilterProtoFamily::IPv4, NetfilterProtoFamily::IPv6].into_iter().zip(&mut seen) {
        for chain in &chains {
            *seen |= nft.chain(Table { family, name: "nat" }, chain)?.is_some();
        }
    }
    Ok(seen)
}

/// Whether the programs are installed, of IPv4 and of IPv6.
#[must_use]
pub fn installed() -> [bool; 2] {
    ["iptables", "ip6tables"]
        .map(|name| ["save", "restore"].iter().all(|part| program::locate(&format!("{name}-{part}")).is_ok()))
}

/// What to say of rules of a family whose programs are missing.
#[must_use]
pub fn missing(v6: bool) -> FirewallError {
    let name = if v6 { "ip6tables-restore" } else { "iptables-restore" };
    program::locate(name)
        .err()
        .unwrap_or_else(|| FirewallError::new("locate", name, "it was not there a moment ago: try again"))
}

/// The same for all containers and networks.
///
/// # Errors
/// As [`may_exist`].
pub fn any_may_exist(nft: &mut Nft) -> Result<bool, FirewallError> {
    others_may_exist(nft, "", &[])
}

/// The same for all containers and networks but these containers of `network`. Given are container IDs and interface names.
///
/// # Errors
/// As [`may_exist`].
pub fn others_may_exist(nft: &mut Nft, network: &str, known: &[(String, String)]) -> Result<bool, FirewallError> {
    let chains_of = |(container_id, _): &(String, String)| {
        let (network, container_id) = (network.to_owned(), container_id.clone());
        MasqueradeKey { network, container_id, ifname: String::new() }.iptables_chains()
    };
    let own = OnceCell::new();
    for family in [NetfilterProtoFamily::IPv4, NetfilterProtoFamily::IPv6] {
        let mut chains = nft.chain_names(Table { family, name: "nat" })?;
        chains.retain(|chain| chain.starts_with(CHAIN_PREFIX));
        let is_known = |chain: &String| {
            own.get_or_init(|| known.iter().flat_map(chains_of).collect::<HashSet<String>>()).contains(chain)
        };
        if !chains.iter().all(is_known) {
            return Ok(true);
        }
    }
    Ok(has_legacy_nat())
}

/// Whether the kernel has, or may have, a `nat` table of legacy iptables.
#[must_use]
pub fn has_legacy_nat() -> bool {
    for names in ["/proc/thread-self/net/ip_tables_names", "/proc/thread-self/net/ip6_tables_names"] {
        match std::fs::read_to_string(names) {
            Ok(tables) if tables.lines().any(|table| table == "nat") => return true,
            Ok(_) => {}
            // The kernel has no legacy iptables.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) => return true,
        }
    }
    false
}

/// The `nat` tables of both families at one moment; a family without programs has none.
pub(crate) struct Tables(Vec<(bool, SavedTable)>);

impl Tables {
    pub(crate) fn look(means: Means<'_>) -> Result<Self, FirewallError> {
        let tables = families(means)?.into_iter().map(|programs| Ok((programs.v6, programs.look()?)));
        tables.collect::<Result<_, _>>().map(Self)
    }

    /// As [`check`].
    pub(crate) fn has(&self, key: &MasqueradeKey, addrs: &[IpNet]) -> Result<bool, FirewallError> {
        let Ok(wanted) = Wanted::new(key) else { return Ok(addrs.is_empty()) };
        Ok(by_family(addrs).all(|(family, addrs)| {
            let table = self.0.iter().find(|(v6, _)| *v6 == family);
            table.is_some_and(|(_, table)| Wanted::choose(&wanted, table).additions(table, family, &addrs).is_empty())
        }))
    }

    /// Chains of the native plugins' names that belong to none of these attachments, and what leads to them.
    pub(crate) fn strangers(&self, known: &[MasqueradeKey]) -> Vec<Marked> {
        let known: Vec<String> = known.iter().flat_map(MasqueradeKey::iptables_chains).collect();
        let mut strange = Vec::new();
        for (v6, table) in &self.0 {
            let program = if *v6 { "ip6tables" } else { "iptables" };
            // `CNI-` and 24 hexadecimal digits: other plugins' chains (`CNI-HOSTPORT-…`) are not for us to judge.
            let is_ours = |chain: &&String| {
                let digits = chain.strip_prefix(CHAIN_PREFIX).unwrap_or_default();
                digits.len() == 24 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) && !known.contains(chain)
            };
            for chain in table.chains.iter().filter(is_ours) {
                let place = format!("{program} nat {chain}");
                let of_chain =
                    |saved: &&SavedRule| [Some(&saved.rule.chain), saved.rule.target.as_ref()].contains(&Some(chain));
                let rules: Vec<&SavedRule> = table.rules.iter().filter(of_chain).collect();
                let mark = rules.iter().find_map(|saved| saved.rule.comment.clone()).unwrap_or_default();
                let leads = rules.iter().filter(|saved| saved.rule.target.as_ref() == Some(chain));
                let mut commands: Vec<String> =
                    leads.map(|saved| format!("{program} -w -t nat -D {}", saved.line)).collect();
                commands.extend(["-F", "-X"].map(|flag| format!("{program} -w -t nat {flag} {chain}")));
                // What a shell could take for more than a word, whether it stands between quotes or not.
                let is_plain = |c: char| c.is_ascii_alphanumeric() || " -_./:,=+\"\\".contains(c);
                if !commands.iter().all(|command| command.chars().all(is_plain)) {
                    commands.clear();
                }
                let addresses =
                    rules.iter().filter_map(|saved| saved.rule.source).map(|source| source.addr()).collect();
                gather(&mut strange, Marked { place, mark, addresses, commands });
            }
        }
        strange
    }
}

/// The `nat` tables of the families whose programs are installed, by the name that nftables give the family.
///
/// # Errors
/// As [`ensure`].
pub(crate) fn nat_tables(means: Means<'_>) -> Result<Vec<(&'static str, SavedTable)>, FirewallError> {
    let Tables(tables) = Tables::look(means)?;
    Ok(tables.into_iter().map(|(v6, table)| (if v6 { "ip6" } else { "ip" }, table)).collect())
}

/// The programs that are installed: those of one family may be missing, not both.
fn families(means: Means<'_>) -> Result<Vec<Programs<'_>>, FirewallError> {
    match (Programs::locate(false, means), Programs::locate(true, means)) {
        (Err(error), Err(_)) => Err(error),
        (v4, v6) => Ok(v4.into_iter().chain(v6).collect()),
    }
}

/// The addresses of IPv4 and of IPv6, where there are any.
fn by_family(addrs: &[IpNet]) -> impl Iterator<Item = (bool, Vec<IpNet>)> {
    [false, true].into_iter().filter_map(|v6| {
        let of_family = |address: &IpNet| matches!(address, IpNet::V6(_)) == v6;
        let addrs: Vec<IpNet> = addrs.iter().copied().filter(of_family).collect();
        (!addrs.is_empty()).then_some((v6, addrs))
    })
}

/// The container whose masquerading this rule begins, with its network.
fn key_of(rule: &Rule) -> Option<MasqueradeKey> {
    let chain = rule.target.as_deref().filter(|target| target.starts_with(CHAIN_PREFIX))?;
    let key = MasqueradeKey::of_iptables(chain, rule.comment.as_deref()?)?;
    (rule.chain == POSTROUTING).then_some(key)
}

/// The container whose masquerading in `network` this rule begins.
fn container_of(rule: &Rule, network: &str) -> Option<String> {
    key_of(rule).filter(|key| key.network == network).map(|key| key.container_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_runs_what_this_asks_for_and_no_program_besides() {
        let change = "*nat\n-N CNI-1\n-A CNI-1 -d 10.1.0.0/16 -m comment --comment \"name: \\\"n\\\" id: \\\"c\\\"\" -j ACCEPT\nCOMMIT\n";
        assert!(is_change(change) && is_change("") && is_change("*nat\n-F CNI-1\n-X CNI-1\nCOMMIT"));
        for evil in [
            "*filter",
            "*nat\n-P INPUT DROP",
            "-A X -M /tmp/x",
            "-A X -M/tmp/x",
            "-A X --modprobe=/tmp/x",
            "-A X --mo /x",
        ] {
            assert!(!is_change(evil), "{evil}");
        }
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(is_restore(&words(&["--noflush", "-w", "5"])));
        for evil in [&["--noflush", "-w", "x"][..], &["--noflush", "-w"], &["-w", "--noflush", "5"], &[]] {
            assert!(!is_restore(&words(evil)), "{evil:?}");
        }
    }
}
