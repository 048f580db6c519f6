//! Masquerading of an attachment's addresses (`ipMasq`) with the system's iptables.
//!
//! Chain, rules and comments are the native plugins'. So Postern and a native plugin find and remove each other's
//! rules. The rules are in table `nat` of the address's family:
//!
//! ```text
//! -A POSTROUTING -s <address> -j CNI-<hash>           one per address
//! -A CNI-<hash> -d <the address's network> -j ACCEPT
//! -A CNI-<hash> ! -d <multicast> -j MASQUERADE
//! ```
//!
//! The chain belongs to a container and a network: attachments of one container to one network share the chain. The
//! chain is removed together with the last rule that refers to it.
//!
//! The chain's name is a hash of network and container written without a separator. So network `net` with container
//! `1abc` and network `net1` with container `abc` have the same hash. The first container gets the chain with this
//! name. The other container gets a chain whose name is hashed with separators.

use super::prelude::*;
use super::{SeenTable, validate};
use crate::key::ChainKind::Masquerading;
use crate::key::is_masquerading;
use crate::marked::{Marked, gather};
use crate::masquerade::{MULTICAST_V4, MULTICAST_V6};
use postern_types::IptablesVariant;

pub(super) const POSTROUTING: &str = "POSTROUTING";

/// Returns the rule that starts the masquerading of traffic from `source`.
fn jump(source: IpNet, chain: &str, comment: &str) -> IptablesRule {
    IptablesRule { source: Some((true, source)), ..IptablesRule::new(POSTROUTING, Target::jump(chain)) }
        .commented(comment)
}

/// Returns the rules of these addresses of one family in two forms. The first form has the native plugins' chain name.
/// The second form has the name that is used if the first name is taken.
fn sets(key: &AttachmentKey, addrs: &[IpNet], v6: bool) -> Result<[IptablesRuleSet; 2], FirewallError> {
    let multicast = if v6 { MULTICAST_V6 } else { MULTICAST_V4 };
    Ok(Masquerading.owners(key)?.map(|owner| {
        let (chain, comment) = owner.names();
        let to = |network: Is<IpNet>, target| {
            IptablesRule { destination: Some(network), ..IptablesRule::new(chain, target) }.commented(comment)
        };
        // The ACCEPT rules come before MASQUERADE. Otherwise a second network's own traffic would be masqueraded.
        let accept = addrs.iter().map(|address| (IptablesPlace::Early, to((true, address.trunc()), Target::Accept)));
        let masquerade = to((false, multicast), Target::Masquerade { random_fully: false });
        let jumps = addrs.iter().map(|address| (IptablesPlace::Last, jump(address.addr().into(), chain, comment)));
        let rules = accept.chain([(IptablesPlace::Last, masquerade)]).chain(jumps).collect();
        IptablesRuleSet { owner, shared: Vec::new(), rules }
    }))
}

/// True if a rule of one of these owners starts the masquerading of traffic from `source`.
fn begins(rule: &IptablesRule, owners: &[IptablesOwner], source: IpNet) -> bool {
    owners.iter().map(IptablesOwner::names).any(|(chain, comment)| *rule == jump(source, chain, comment))
}

/// Makes sure that traffic from each address to outside its network is masqueraded. `addrs` are host addresses with
/// their network's prefix length. `variant` is the variant of earlier rules. With `None`, the variant for new rules is
/// used.
///
/// Returns the handles of the new rules that lead to the container's chain. The list is empty if iptables' programs
/// made the rules. The record keeps the handles, to find the rules again.
///
/// # Errors
/// A name in `key` is invalid, a program is missing or fails, or the deadline passes.
pub fn ensure_in(
    variant: Option<IptablesVariant>,
    key: &AttachmentKey,
    addrs: &[IpNet],
    runner: ProgramRunner<'_>,
) -> Result<Vec<u64>, FirewallError> {
    validate(Masquerading, key)?;
    let mut handles = Vec::new();
    for (v6, addrs) in by_family(addrs) {
        handles.extend(IptablesRuleSet::ensure(&sets(key, &addrs, v6)?, &Programs::locate_in(variant, v6, runner)?)?);
    }
    Ok(handles)
}

/// True if everything that [`ensure_in`] makes is there. If `known` has the handles of all rules that lead to the
/// chain, no other rules are read.
///
/// # Errors
/// The errors of [`ensure_in`].
pub fn check_known(
    key: &AttachmentKey,
    addrs: &[IpNet],
    known: RuleHandles<'_>,
    runner: ProgramRunner<'_>,
) -> Result<bool, FirewallError> {
    is_each(key, addrs, |v6, sets| {
        in_any(known.recorded, v6, NAT, runner, |place| IptablesRuleSet::check(sets, known.handles, place))
    })
}

/// True if `check` is true for the rules of each family of these addresses.
fn is_each(
    key: &AttachmentKey,
    addrs: &[IpNet],
    check: impl Fn(bool, &[IptablesRuleSet; 2]) -> Result<bool, FirewallError>,
) -> Result<bool, FirewallError> {
    if validate(Masquerading, key).is_err() {
        return Ok(addrs.is_empty());
    }
    for (v6, addrs) in by_family(addrs) {
        if !check(v6, &sets(key, &addrs, v6)?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes the masquerading of these addresses from every variant that can have the rules, by the record. The
/// container's chain is removed too, unless another attachment uses it. If `known` has the handles of all rules that
/// lead to the chain, no other rules are read. If `known` also has the handles of the tables, no rule is read at all.
/// Returns the number of changes.
///
/// # Errors
/// A program that a record's rules need is missing or fails, or the deadline passes. Missing rules are no error, even
/// if no rule can be named after `key`.
pub fn remove_known(
    key: &AttachmentKey,
    addrs: &[IpNet],
    known: RuleHandles<'_>,
    runner: ProgramRunner<'_>,
) -> Result<usize, FirewallError> {
    let Ok(owners) = Masquerading.owners(key) else { return Ok(0) };
    let mut changes = 0;
    let all = addrs;
    for (v6, addrs) in by_family(addrs) {
        let goes = |rule: &IptablesRule| {
            addrs.iter().any(|address| {
                // Old releases of the native plugins wrote the source with its network's prefix length.
                begins(rule, &owners, address.addr().into()) || begins(rule, &owners, address.trunc())
            })
        };
        let sets = sets(key, &addrs, v6)?;
        changes += remove_from_each(known.recorded, v6, NAT, runner, |place| {
            Ok(match numbers::remove(&sets, known.of(all, v6), place)? {
                Some(count) => count,
                None => IptablesRuleSet::remove(&owners, known.handles, place, goes)?,
            })
        })?;
    }
    Ok(changes)
}

/// Removes the masquerading of all attachments of the container to the network, in both families. The addresses in
/// `spared` keep their rules. Returns the number of changes.
///
/// # Errors
/// The errors of [`remove_known`].
pub fn remove_all(
    key: &AttachmentKey,
    spared: &[IpAddr],
    recorded: Recorded,
    runner: ProgramRunner<'_>,
) -> Result<usize, FirewallError> {
    let Ok(owners) = Masquerading.owners(key) else { return Ok(0) };
    // Every rule with the owner's mark is removed. A chain stays if another owner's rule refers to it.
    let goes = |rule: &IptablesRule| {
        rule.chain == POSTROUTING
            && owners.iter().any(|owner| rule.comment() == owner.comment.as_deref())
            && !rule.source_network().is_some_and(|source| spared.contains(&source.addr()))
    };
    let mut changes = 0;
    for v6 in [false, true] {
        changes +=
            remove_from_each(recorded, v6, NAT, runner, |place| IptablesRuleSet::remove(&owners, &[], place, goes))?;
    }
    Ok(changes)
}

/// A rule in `POSTROUTING` that starts a container's masquerading, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenMasqueradeJump {
    /// The source of the traffic: an address, or in rules of old native plugins the address's whole network.
    pub source: IpNet,
    /// The container and its network; the interface is empty.
    pub key: AttachmentKey,
}

impl SeenMasqueradeJump {
    fn read(rule: &IptablesRule) -> Option<Self> {
        let seen = Self { source: rule.source_network()?, key: Masquerading.key_of(rule)? };
        begins(rule, &Masquerading.owners(&seen.key).ok()?, seen.source).then_some(seen)
    }

    /// Returns the rule's comment.
    #[must_use]
    pub fn mark(&self) -> String {
        self.key.iptables_comment(Masquerading).unwrap_or_default()
    }
}

/// Returns the rules that start the masquerading of every container, in both families, whatever program made the rules.
/// Changes nothing.
///
/// # Errors
/// The errors of [`remove_all`].
pub fn list(runner: ProgramRunner<'_>) -> Result<Vec<SeenMasqueradeJump>, FirewallError> {
    Ok(Tables::look(NAT, runner)?.rules().filter_map(|saved| SeenMasqueradeJump::read(&saved.rule)).collect())
}

/// Removes these rules, and the chains that no other rule leads to. Returns the number of changes.
///
/// # Errors
/// The errors of [`remove_all`].
pub fn remove_seen(seen: &[SeenMasqueradeJump], runner: ProgramRunner<'_>) -> Result<usize, FirewallError> {
    let mut named = HashSet::new();
    let keys = seen.iter().map(|seen| &seen.key).filter(|key| named.insert(*key));
    let owners: Vec<IptablesOwner> = keys.filter_map(|key| Masquerading.owners(key).ok()).flatten().collect();
    let goes = |rule: &IptablesRule| SeenMasqueradeJump::read(rule).is_some_and(|rule| seen.contains(&rule));
    let mut changes = 0;
    for programs in Programs::of_all(NAT, runner) {
        let plan = |table: &SavedTable| {
            // A chain that none of these rules leads to stays, because another process may use it next.
            let leads = |owner: &&IptablesOwner| {
                table.rules.iter().any(|saved| owner.leads_here(&saved.rule) && goes(&saved.rule))
            };
            owners.iter().filter(leads).flat_map(|owner| owner.removals(table, goes)).collect()
        };
        changes += programs.change(&Scope::whole(NAT), plan)?.0;
    }
    Ok(changes)
}

impl Tables {
    /// True if all masquerading of these addresses is there.
    ///
    /// # Errors
    /// A name in `key` is invalid.
    pub fn has(&self, key: &AttachmentKey, addrs: &[IpNet]) -> Result<bool, FirewallError> {
        is_each(key, addrs, |v6, sets| Ok(self.of(v6).any(|table| IptablesRuleSet::is_complete(sets, table))))
    }

    /// Returns the chains with a native plugin's name, and the rules that lead to these chains. The chains of `known`
    /// are left out.
    #[must_use]
    pub fn unrecorded(&self, known: &[AttachmentKey]) -> Vec<Marked> {
        let known: Vec<String> = known.iter().flat_map(|key| key.iptables_chains(Masquerading)).collect();
        let mut unrecorded = Vec::new();
        for SeenTable { program, saved: table, .. } in &self.0 {
            // Chains of other plugins (`CNI-HOSTPORT-…`) are ignored here.
            let is_ours = |chain: &&String| is_masquerading(chain) && !known.contains(chain);
            for chain in table.chains.iter().filter(is_ours) {
                let place = format!("{program} nat {chain}");
                let leads = |saved: &&&SavedRule| saved.rule.target_chain() == Some(chain);
                let of_chain = |saved: &&SavedRule| saved.rule.chain == *chain || leads(&saved);
                let rules: Vec<&SavedRule> = table.rules.iter().filter(of_chain).collect();
                let mark = rules.iter().find_map(|saved| saved.rule.comment()).unwrap_or_default().to_owned();
                let jumps = rules.iter().filter(leads).map(|saved| TableChange::Delete((*saved).clone()));
                let changes = jumps.chain([TableChange::Flush(chain.clone()), TableChange::DeleteChain(chain.clone())]);
                let mut commands: Vec<String> = changes.map(|change| format!("{program} -w -t nat {change}")).collect();
                // A shell reads these characters as one word, with or without quotes.
                let is_plain = |c: char| c.is_ascii_alphanumeric() || " -_./:,=+\"\\".contains(c);
                if !commands.iter().all(|command| command.chars().all(is_plain)) {
                    commands.clear();
                }
                let addresses =
                    rules.iter().filter_map(|saved| saved.rule.source_network()).map(|source| source.addr()).collect();
                gather(&mut unrecorded, Marked { place, mark, addresses, commands });
            }
        }
        unrecorded
    }
}
