//! iptables over netlink: rules of the nf_tables variant are read and changed over nfnetlink, without the program
//! `iptables`.
//!
//! A change is one batch. The kernel makes the whole batch or nothing. It refuses the batch if the rules have changed
//! since they were read. A rule that can't be handled over netlink is an error. The caller then runs `iptables`.

use super::prelude::*;
use crate::nft::batch::{BaseChain, Batch, MOST_SEEN, Table};
use crate::nft::read::{RULE_CHAIN, all_rules};
use crate::nft::rule::NftRule;
use netlink_packet_netfilter::nftables::{InetHookNumber, RuleAttribute};
use postern_netlink::Attributes;
use std::collections::HashMap;

/// iptables' built-in chains, with hook and priority, by table.
const NAT_CHAINS: [(&str, InetHookNumber, i32); 4] = [
    ("PREROUTING", InetHookNumber::PreRouting, -100),
    ("INPUT", InetHookNumber::LocalIn, 100),
    ("OUTPUT", InetHookNumber::LocalOut, -100),
    ("POSTROUTING", InetHookNumber::PostRouting, 100),
];
const FILTER_CHAINS: [(&str, InetHookNumber, i32); 3] = [
    ("INPUT", InetHookNumber::LocalIn, 0),
    ("FORWARD", InetHookNumber::Forward, 0),
    ("OUTPUT", InetHookNumber::LocalOut, 0),
];

/// The text before a network's name in the plugins' comments.
const NAMED: &str = "name: \"";

/// The beginning of the names of all chains that the plugins make.
const PLUGINS: &str = "CNI-";

/// Returns the form of a built-in chain of iptables.
fn base(table: Table, chain: &str) -> Option<BaseChain> {
    let known = if table.name == NAT { NAT_CHAINS.as_slice() } else { FILTER_CHAINS.as_slice() };
    let (_, hook, priority) = known.iter().find(|(name, ..)| *name == chain)?;
    Some(BaseChain { kind: table.name, hook: *hook, priority: *priority })
}

/// The error that says why only the program `iptables` can read or change the rules. Nothing was changed.
fn unable(what: impl Into<String>) -> FirewallError {
    FirewallError::new("use netlink for", "iptables", what)
}

/// Reads the part of a table that `scope` names. If `lenient` is true, an unreadable rule counts as a foreign rule.
pub(super) fn look(nft: &mut Nft, v6: bool, scope: &Scope<'_>, lenient: bool) -> Result<SavedTable, FirewallError> {
    let table = table(v6, scope.table);
    let (chains, rules) = if scope.whole {
        (nft.chain_names(table)?, rules_in(nft, table, None)?)
    } else {
        look_around(nft, table, scope)?
    };
    let is_ours = |saved: &SavedRule| !saved.rule.is_foreign() || scope.concerns(&saved.rule, PLUGINS);
    let rules: Vec<SavedRule> = rules.into_iter().filter(is_ours).collect();
    match rules.iter().find(|saved| saved.rule.is_foreign() && !lenient) {
        Some(SavedRule { rule: IptablesRule { chain, .. }, handle, .. }) => {
            Err(unable(format!("a rule of {table} {chain} (handle {handle}) has another form")))
        }
        None => Ok(SavedTable { chains, rules }),
    }
}

/// Returns the rules of a table or of one chain, in their order.
pub(super) fn rules_in(nft: &mut Nft, table: Table, chain: Option<&str>) -> Result<Vec<SavedRule>, FirewallError> {
    dump(nft, table, chain, |rule| read(rule, table))
}

/// True if all rules in these chains can be read.
pub(super) fn can_read(nft: &mut Nft, table: Table, chains: &[String]) -> Result<bool, FirewallError> {
    nft.look(|nft| {
        for chain in chains {
            if rules_in(nft, table, Some(chain))?.iter().any(|saved| saved.rule.is_foreign()) {
                return Ok(false);
            }
        }
        Ok(true)
    })
}

/// True if one of these chains of table `nat` may belong to this network. Comments of the rules that lead to a chain
/// name the network. If no rule leads to a chain, comments in the chain count. The text of rules is only searched, not
/// decoded, because there are many foreign rules.
pub(super) fn any_named(
    nft: &mut Nft,
    table: Table,
    chains: Vec<String>,
    network: &str,
) -> Result<bool, FirewallError> {
    let own = format!("{network}\" id: \"");
    let look = |rule: Attributes<'_>| {
        let rule = NftRule::read(rule);
        Some((rule.target(), names(rule.attributes().0, &own)))
    };
    let mut unnamed: HashSet<String> = chains.into_iter().collect();
    for home in ["POSTROUTING", super::hostport::DNAT] {
        for (chain, named) in dump(nft, table, Some(home), look)? {
            let Some(chain) = chain.filter(|chain| unnamed.contains(chain)) else { continue };
            match named {
                Some(true) => return Ok(true),
                Some(false) => drop(unnamed.remove(&chain)),
                None => {}
            }
        }
    }
    for chain in unnamed {
        if dump(nft, table, Some(&chain), look)?.iter().any(|(_, named)| *named == Some(true)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True if the text of a rule names the network `own`; false if it names another network; `None` if it names no
/// network.
fn names(text: &[u8], own: &str) -> Option<bool> {
    let first = NAMED.as_bytes().first();
    // At nearly all places the first byte differs. Full comparisons take 2.9 ms for 5,000 rules; with this filter they
    // take 0.6 ms.
    let places = text.windows(NAMED.len()).enumerate().filter(|(_, part)| part.first() == first);
    let mut named = places.filter(|(_, part)| *part == NAMED.as_bytes()).peekable();
    named.peek()?;
    let continues = |at: usize| text.get(at + NAMED.len()..).is_some_and(|rest| rest.starts_with(own.as_bytes()));
    Some(named.any(|(at, _)| continues(at)))
}

/// Reads the chains that `scope` names, and all rules that lead to the owner's own chains.
fn look_around<'b>(
    nft: &mut Nft,
    table: Table,
    scope: &Scope<'b>,
) -> Result<(Vec<String>, Vec<SavedRule>), FirewallError> {
    let mut uses = HashMap::new();
    for chain in scope.chains() {
        if let Some(state) = nft.chain(table, chain)? {
            uses.insert(chain, state.uses);
        }
    }
    let own: Vec<(&str, u32)> = scope.own.iter().filter_map(|chain| Some((*chain, *uses.get(chain)?))).collect();
    let mut seen = Seen { table, whole: Vec::new(), rules: Vec::new() };
    for chain in scope.entire.iter().filter(|chain| uses.contains_key(*chain)) {
        seen.read(nft, chain)?;
    }
    if scope.own.is_empty() {
        seen.add(known(nft, table, scope)?);
    }
    // No rule leads to a missing chain.
    if !own.is_empty() {
        for (chain, _) in &own {
            seen.read(nft, chain)?;
        }
        seen.add(known(nft, table, scope)?);
        let mut homes = scope.homes.iter();
        while !all_found(&own, &seen.rules) {
            match homes.next() {
                Some(home) => seen.read(nft, home)?,
                None => {
                    // Another rule, in any chain, leads to the owner's chain.
                    let mut more = rules_in(nft, table, None)?;
                    more.retain(|saved| scope.leads(saved.rule.target_chain()));
                    seen.add(more);
                    break;
                }
            }
        }
    }
    for (chain, wanted) in scope.compared() {
        if !uses.contains_key(chain) || seen.whole.contains(&chain) {
            continue;
        }
        let found: HashSet<&IptablesRule> = seen.rules.iter().map(|saved| &saved.rule).collect();
        let mut missing: Vec<&'b IptablesRule> = wanted.into_iter().filter(|wanted| !found.contains(*wanted)).collect();
        if missing.is_empty() {
            continue;
        }
        if scope.counts {
            seen.read(nft, chain)?;
        } else {
            // The shared rules are usually at the chain's beginning. Many rules of other attachments may follow, and
            // decoding a rule takes longer than receiving it.
            let (question, mut kept) = (all_rules(table, Some(chain)), Vec::new());
            let found = nft.dump_until(
                table.family,
                question,
                |rule| read(rule, table),
                |some| {
                    for SavedRule { rule, .. } in some.iter().skip(kept.len()) {
                        if missing.is_empty() {
                            break;
                        }
                        // Several sets of rules can want an equal shared rule, so `missing` can have the rule twice.
                        let count = missing.len();
                        missing.retain(|wanted| *wanted != rule);
                        kept.push(missing.len() < count || rule.is_foreign());
                    }
                    missing.is_empty()
                },
            )?;
            kept.resize(found.len(), false);
            seen.add(found.into_iter().zip(kept).filter_map(|(rule, kept)| kept.then_some(rule)).collect());
        }
    }
    let mut rules = seen.rules;
    // `is_new` accepts rules that the owner makes for the first time, so an equal rule belongs to another owner.
    rules.retain(|saved| !scope.is_new(&saved.rule));
    let mut chains: Vec<String> = uses.into_keys().map(str::to_owned).collect();
    chains.sort_unstable();
    Ok((chains, rules))
}

/// The rules that were read.
struct Seen<'a> {
    table: Table,
    /// The chains of which all rules were read, in their order.
    whole: Vec<&'a str>,
    rules: Vec<SavedRule>,
}

impl<'a> Seen<'a> {
    /// Reads a chain.
    fn read(&mut self, nft: &mut Nft, chain: &'a str) -> Result<(), FirewallError> {
        if !self.whole.contains(&chain) {
            self.whole.push(chain);
            self.rules.retain(|saved| saved.rule.chain != chain);
            self.rules.extend(rules_in(nft, self.table, Some(chain))?);
        }
        Ok(())
    }

    /// Adds the rules that were not read yet.
    fn add(&mut self, more: Vec<SavedRule>) {
        let place = |saved: &SavedRule| (saved.rule.chain.clone(), saved.handle);
        let mut have: HashSet<(String, u64)> = self.rules.iter().map(place).collect();
        self.rules.extend(more.into_iter().filter(|saved| have.insert(place(saved))));
    }
}

/// Reads the rules with known handles that still lead to the owners' chains. If the owners have no chains, reads the
/// owners' rules with known handles.
fn known(nft: &mut Nft, table: Table, scope: &Scope<'_>) -> Result<Vec<SavedRule>, FirewallError> {
    let is_meant = |rule: &IptablesRule| match scope.own.is_empty() {
        true => scope.names(rule),
        false => scope.leads(rule.target_chain()),
    };
    let mut found = Vec::new();
    for handle in scope.known {
        for home in scope.homes.iter().filter(|home| !scope.entire.contains(home)) {
            let rule = nft.rule(table, home, *handle)?.filter(|rule| rule.handle == *handle);
            let rule = rule.map(|rule| IptablesRule::read(home, rule.attributes(), table.is_v6())).filter(is_meant);
            if let Some(rule) = rule {
                found.push(SavedRule::of_kernel(rule, *handle));
                break;
            }
        }
    }
    Ok(found)
}

/// True if all rules that lead to these chains were read. The kernel counts the rules in a chain together with the
/// rules that lead to it.
fn all_found(chains: &[(&str, u32)], rules: &[SavedRule]) -> bool {
    chains.iter().all(|(chain, uses)| {
        let of_chain = |saved: &&SavedRule| saved.rule.chain == *chain || saved.rule.target_chain() == Some(chain);
        usize::try_from(*uses).is_ok_and(|uses| uses == rules.iter().filter(of_chain).count())
    })
}

/// Reads a rule of the kernel's answer.
fn read(rule: Attributes<'_>, table: Table) -> Option<SavedRule> {
    let chain = rule.first(RULE_CHAIN)?.text_lossy();
    let rule = NftRule::read(rule);
    Some(SavedRule::of_kernel(IptablesRule::read(&chain, rule.attributes(), table.is_v6()), rule.handle))
}

fn dump<T>(
    nft: &mut Nft,
    table: Table,
    chain: Option<&str>,
    read: impl Fn(Attributes<'_>) -> Option<T>,
) -> Result<Vec<T>, FirewallError> {
    nft.dump(table.family, all_rules(table, chain), read)
        .map_err(|errno| FirewallError::errno("list rules of", table.to_string(), errno))
}

/// Makes the changes that `plan` finds necessary, in one transaction. If another program changes a rule meanwhile, the
/// read and the plan are repeated. If the second read finds the same rules, the earlier batch is used again: writing a
/// batch of thousands of changes takes so long that another program could change a rule each time. Returns the number
/// of changes, and the handles of the new rules that lead to the owners' chains.
pub(super) fn change(
    nft: &mut Nft,
    v6: bool,
    scope: &Scope<'_>,
    lenient: bool,
    plan: &impl Fn(&SavedTable) -> Vec<TableChange>,
) -> Result<(usize, Vec<u64>), FirewallError> {
    let of = table(v6, scope.table);
    let mut before: Option<(SavedTable, Batch, usize)> = None;
    let (count, made) = nft.change_and_see(|nft, batch| {
        let saved = look(nft, v6, scope, lenient)?;
        if let Some((_, planned, count)) = before.as_ref().filter(|(seen, ..)| *seen == saved) {
            batch.repeat(planned);
            return Ok(*count);
        }
        let changes = plan(&saved);
        let attributes = |change: &TableChange| {
            if let TableChange::Add { rule, .. } = change { rule.write(v6) } else { Some(vec![]) }
        };
        let Some(attributes) = changes.iter().map(attributes).collect::<Option<Vec<_>>>() else {
            return Err(unable("a change has no form that all versions of iptables read"));
        };
        let only_adds = !changes.iter().any(|change| matches!(change, TableChange::Delete(_)));
        let count = changes.len();
        if count > 0 {
            write(nft, batch, of, &changes, attributes, &saved.chains, scope)?;
        }
        // If there were no chains, `write` has also requested the table. Then this batch must not be used again.
        before = (only_adds && !saved.chains.is_empty()).then(|| (saved, batch.clone(), count));
        Ok(count)
    })?;
    Ok((count, made.iter().map(|rule| rule.handle).collect()))
}

/// Puts the changes into a batch, with the table and the built-in chains that they need. `chains` are the existing
/// chains. `attributes` are the attributes of each new rule.
fn write(
    nft: &mut Nft,
    batch: &mut Batch,
    table: Table,
    changes: &[TableChange],
    attributes: Vec<Vec<RuleAttribute>>,
    chains: &[String],
    scope: &Scope<'_>,
) -> Result<(), FirewallError> {
    let mut made: Vec<&str> = Vec::new();
    let is_noted = |rule: &IptablesRule| scope.notes(&rule.chain, rule.target_chain());
    let noted = changes.iter().filter(|change| matches!(change, TableChange::Add { rule, .. } if is_noted(rule)));
    let notes = noted.count() <= MOST_SEEN;
    let adds = changes.iter().any(|change| matches!(change, TableChange::NewChain(_) | TableChange::Add { .. }));
    if adds && chains.is_empty() && nft.table(table)?.is_none() {
        batch.add_table(table, None);
    }
    for (change, attributes) in changes.iter().zip(attributes) {
        match change {
            TableChange::NewChain(chain) => batch.add_chain(table, chain, None, None),
            TableChange::Add { rule, first } => {
                let chain = rule.chain.as_str();
                // An existing chain is never declared again, because a declaration could change its policy.
                if let Some(form) = base(table, chain)
                    && !chains.contains(&rule.chain)
                    && !made.contains(&chain)
                {
                    batch.add_chain(table, chain, Some(form), None);
                    made.push(chain);
                }
                batch.add_rule(table, chain, *first, notes && is_noted(rule), attributes);
            }
            TableChange::Delete(saved) => batch.delete_rule(table, &saved.rule.chain, saved.handle),
            TableChange::Flush(chain) => batch.flush_chain(table, chain),
            TableChange::DeleteChain(chain) => batch.delete_chain(table, chain),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::{CloneFlags, unshare};
    use std::cell::{Cell, RefCell};
    use std::time::{Duration, Instant};

    /// Other programs change rules all the time. A change is planned again only if another program has changed rules
    /// that concern it.
    #[test]
    fn a_change_is_planned_once_while_others_change_other_rules() {
        // `Nft` works in the namespace of the thread that opens it.
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let open = || Nft::open(Instant::now() + Duration::from_secs(20)).unwrap();
        let (mut nft, other) = (open(), RefCell::new(open()));
        let add = |line: &str| TableChange::Add { rule: IptablesRule::parse(line), first: false };
        let make = |nft: &mut Nft, chains: &[&str], changes: &[TableChange]| {
            change(nft, false, &Scope::of_chains(NAT, chains), false, &|_| changes.to_vec()).unwrap();
        };
        let chains = ["CNI-A", "CNI-B"].map(|chain| TableChange::NewChain(chain.to_owned()));
        make(&mut nft, &[], &[chains.as_slice(), &[add("CNI-B -s 10.1.0.1/32 -j RETURN")]].concat());
        let (reads, plans) = (Cell::new(0), Cell::new(0));
        for (theirs, expected) in [("CNI-B", 1), ("CNI-A", 2)] {
            reads.set(0);
            plans.set(0);
            let scope = Scope::of_chains(NAT, &["CNI-A"]);
            let planned = |nft: &mut Nft| {
                change(nft, false, &scope, false, &|_| {
                    plans.set(plans.get() + 1);
                    // The other program runs between the read and the transaction.
                    if reads.replace(reads.get() + 1) == 0 {
                        let theirs = add(&format!("{theirs} -s 10.2.0.1/32 -j RETURN"));
                        make(&mut other.borrow_mut(), &[], &[theirs]);
                    }
                    vec![add("CNI-A -s 10.3.0.1/32 -j RETURN")]
                })
            };
            assert_eq!(planned(&mut nft).unwrap().0, 1);
            assert_eq!(plans.get(), expected, "{theirs}");
        }
        let seen = look(&mut nft, false, &Scope::whole(NAT), false).unwrap();
        let of = |chain: &str| seen.rules.iter().filter(|saved| saved.rule.chain == chain).count();
        assert_eq!((of("CNI-A"), of("CNI-B")), (3, 2));
    }
}
