//! A set of nftables rules with one owner. This code makes, compares, finds and removes the rules of all tables and
//! chains.
//!
//! A set has *entries*, which are rules in chains that all owners share ([`SharedTable`]). It may also have its own
//! *chains*, which have only the owner's rules. Every rule has the owner's comment. The caller decides the content and
//! the names of the rules.

use std::collections::HashSet;

use super::batch::{Batch, MOST_SEEN, Table};
use super::rule::{Expression, NftRule, written};
use super::shared::{FoundRule, SharedTable};
use crate::{FirewallError, Nft};

/// The comment that distinguishes an owner's rules from other rules.
pub(crate) struct Mark {
    /// The comment of each rule.
    pub(crate) comment: Vec<u8>,
    /// The length of the part that identifies the owner; `None`: the whole comment.
    pub(crate) identifying: Option<usize>,
}

impl Mark {
    /// True if the rule belongs to the owner.
    pub(crate) fn is_on(&self, rule: &NftRule) -> bool {
        match self.identifying.and_then(|identifying| self.comment.get(..identifying)) {
            Some(beginning) => rule.commented(beginning),
            None => rule.comment.as_ref() == Some(&self.comment),
        }
    }
}

/// An owner, and the places where its rules can be.
pub(crate) struct NftOwner {
    pub(crate) shared: &'static SharedTable,
    pub(crate) mark: Mark,
    /// The owner's chains. Each chain leads to later chains of the list.
    pub(crate) chains: Vec<String>,
    /// A chain of another owner that may lead to the first of `chains`: the first chain of one owner can have the same
    /// name as the second chain of another owner.
    pub(crate) outer: Option<String>,
}

/// A rule in a shared chain.
pub(crate) struct SharedRule {
    pub(crate) chain: &'static str,
    pub(crate) rule: Vec<Expression>,
}

/// All rules that an owner should have.
pub(crate) struct NftRuleSet {
    pub(crate) owner: NftOwner,
    pub(crate) entries: Vec<SharedRule>,
    /// The rules of the owner's chains, in their order.
    pub(crate) contents: Vec<Vec<Vec<Expression>>>,
}

/// The entries to look at before a set is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryScope {
    All,
    /// No entries: the owner has no entries yet.
    None,
    /// All entries, but only missing entries are added. An entry with the owner's mark that is not in the set belongs
    /// to another attachment of the container, and stays.
    Beside,
}

impl NftRuleSet {
    fn table(&self) -> Table {
        self.owner.shared.table
    }

    /// Returns the chains of the entries. The handles of [`NftRuleSet::ensure`] have the same order.
    fn places(&self) -> Vec<&'static str> {
        self.entries.iter().map(|entry| entry.chain).collect()
    }

    /// Works as [`NftOwner::remove`]. If handles are missing, all entries are read.
    pub(crate) fn remove(
        &self,
        nft: &mut Nft,
        handles: &[u64],
        goes: impl Fn(&NftRule) -> bool,
    ) -> Result<usize, FirewallError> {
        let handles = if handles.len() == self.entries.len() { handles } else { &[] };
        self.owner.remove(nft, handles, &self.places(), goes)
    }

    /// Removes the entries with these handles without reading them. To show a rule, the kernel walks through its chain,
    /// so the cost of reading grows with the attachments. `handles` must be the handles of all entries of the set, in
    /// their order, in the table with the handle `table`.
    ///
    /// Returns false, and changes nothing, if the table or an entry is gone, or if handles are missing.
    pub(crate) fn remove_numbered(&self, nft: &mut Nft, handles: &[u64], table: u64) -> Result<bool, FirewallError> {
        if handles.is_empty() || handles.len() != self.entries.len() || !self.owner.chains.is_empty() {
            return Ok(false);
        }
        let rules: Vec<(&str, u64)> = self.places().into_iter().zip(handles.iter().copied()).collect();
        nft.delete_numbered(self.table(), table, &rules)
    }

    fn own_chains(&self) -> impl Iterator<Item = (&String, &Vec<Vec<Expression>>)> {
        self.owner.chains.iter().zip(&self.contents)
    }

    /// Makes sure that the owner has exactly these rules, in one transaction. Nothing is changed if everything is
    /// there.
    ///
    /// If `is_taken` is true for an entry, another owner has the set's names: returns `None`, and changes nothing.
    /// Otherwise returns the handles of the new entries. The record keeps the handles, to find the entries again.
    pub(crate) fn ensure(
        &self,
        nft: &mut Nft,
        look: EntryScope,
        is_taken: impl Fn(&NftRule) -> bool,
    ) -> Result<Option<Vec<u64>>, FirewallError> {
        let Self { owner, entries, .. } = self;
        let (is_ours, made) = nft.change_and_see(|nft, batch| {
            let exists = nft.table(self.table())?.is_some();
            let there = if exists { owner.chains_there(nft)? } else { Vec::new() };
            // An entry can lead only to a chain that exists. So an owner whose chains are all missing has no entries.
            let looks = exists && look != EntryScope::None && (owner.chains.is_empty() || !there.is_empty());
            let present = if looks { owner.shared.entries(nft)? } else { Vec::new() };
            if present.iter().any(|found| is_taken(&found.rule)) {
                return Ok(false);
            }
            owner.shared.ensure(nft, batch, exists)?;
            self.fill(nft, batch, &there)?;
            let mut missing: Vec<&SharedRule> = entries.iter().collect();
            for FoundRule { chain, rule } in present.iter().filter(|found| owner.mark.is_on(&found.rule)) {
                let is = rule.expressions();
                let position = missing.iter().position(|entry| entry.chain == *chain && entry.rule == is);
                match position.filter(|_| rule.comment.as_ref() == Some(&owner.mark.comment)) {
                    Some(position) => drop(missing.remove(position)),
                    None if look == EntryScope::Beside => {}
                    None => batch.delete_rule(self.table(), chain, rule.handle),
                }
            }
            // If very many entries are missing, the record does not keep their handles. Later runs find these entries
            // by their comments.
            let sees = missing.len() <= MOST_SEEN;
            for SharedRule { chain, rule } in missing {
                batch.add_rule(self.table(), chain, false, sees, written(rule, Some(&owner.mark.comment)));
            }
            Ok(true)
        })?;
        Ok(is_ours.then(|| made.iter().map(|rule| rule.handle).collect()))
    }

    /// Gives the owner's chains exactly the rules of this set. If one chain differs, all chains are filled again,
    /// because the rules of a chain refer to the next chain.
    fn fill(&self, nft: &mut Nft, batch: &mut Batch, there: &[&str]) -> Result<(), FirewallError> {
        let mut stale = false;
        for (chain, rules) in self.own_chains() {
            if !there.contains(&chain.as_str()) {
                batch.add_chain(self.table(), chain, None, None);
                stale = true;
            } else if !self.fills(&nft.rules(self.table(), chain)?, rules) {
                stale = true;
            }
        }
        if !stale {
            return Ok(());
        }
        for (chain, rules) in self.own_chains() {
            if there.contains(&chain.as_str()) {
                batch.flush_chain(self.table(), chain);
            }
            for rule in rules {
                batch.append_rule(self.table(), chain, rule, Some(&self.owner.mark.comment));
            }
        }
        Ok(())
    }

    /// True if a chain has exactly these rules, with the owner's mark.
    fn fills(&self, present: &[NftRule], wanted: &[Vec<Expression>]) -> bool {
        present.len() == wanted.len()
            && present.iter().zip(wanted).all(|(present, wanted)| self.owner.mark.is_on(present) && present.is(wanted))
    }

    /// True if everything that [`NftRuleSet::ensure`] makes is there and effective. If the handles still belong to the
    /// owner's entries, and these entries are complete, no other entries are read.
    pub(crate) fn check(&self, nft: &mut Nft, handles: &[u64]) -> Result<bool, FirewallError> {
        let table = self.table();
        if let Some(known) = self.owner.known(nft, handles, &self.places())? {
            let of_chain = |chain: &str| match self.owner.shared.entry_chains().any(|entries| entries == chain) {
                true => Ok(known.iter().filter(|found| found.chain == chain).map(|found| found.rule.clone()).collect()),
                false => nft.rules(table, chain),
            };
            if self.is_complete(of_chain)? {
                return Ok(true);
            }
        }
        self.is_complete(|chain| nft.rules(table, chain))
    }

    /// Works as [`NftRuleSet::check`]; `rules` returns the rules of a chain.
    pub(crate) fn is_complete<R: AsRef<[NftRule]>>(
        &self,
        mut rules: impl FnMut(&str) -> Result<R, FirewallError>,
    ) -> Result<bool, FirewallError> {
        for chain in self.owner.shared.entry_chains() {
            let present = rules(chain)?;
            let own = present.as_ref().iter().filter(|rule| self.owner.mark.is_on(rule));
            let own: HashSet<Vec<Expression>> = own.map(NftRule::expressions).collect();
            let mut wanted = self.entries.iter().filter(|entry| entry.chain == chain);
            if !wanted.all(|entry| own.contains(&entry.rule)) {
                return Ok(false);
            }
        }
        for (chain, wanted) in self.own_chains() {
            if !self.fills(rules(chain)?.as_ref(), wanted) {
                return Ok(false);
            }
        }
        self.owner.shared.is_complete(&mut rules)
    }
}

impl NftOwner {
    /// Returns the owner's chains that exist.
    fn chains_there(&self, nft: &mut Nft) -> Result<Vec<&str>, FirewallError> {
        let mut chains = Vec::new();
        for chain in &self.chains {
            if nft.chain(self.shared.table, chain)?.is_some() {
                chains.push(chain.as_str());
            }
        }
        Ok(chains)
    }

    /// True if an entry leads to a chain of the owner, directly or through another chain.
    pub(crate) fn is_reached_by(&self, rule: &NftRule) -> bool {
        let own = self.chains.iter().chain(&self.outer);
        self.shared.target(rule).is_some_and(|target| own.into_iter().any(|chain| *chain == target))
    }

    /// Returns the entries with these handles. `None` if an entry is missing or belongs to another owner. In a new
    /// table, handles start again, so another owner's entry can have the same handle.
    ///
    /// `places` are the chains that probably have the entries: to look up a handle, the kernel walks through a whole
    /// chain.
    fn known(
        &self,
        nft: &mut Nft,
        handles: &[u64],
        places: &[&'static str],
    ) -> Result<Option<Vec<FoundRule>>, FirewallError> {
        let mut entries = Vec::new();
        for (index, handle) in handles.iter().enumerate() {
            let mut found = None;
            let place = places.get(index).copied().filter(|_| places.len() == handles.len());
            let others = self.shared.entry_chains().filter(|chain| Some(*chain) != place);
            for chain in place.into_iter().chain(others) {
                let rule = nft.rule(self.shared.table, chain, *handle)?;
                if let Some(rule) = rule.filter(|rule| rule.handle == *handle && self.mark.is_on(rule)) {
                    found = Some(FoundRule { chain, rule });
                    break;
                }
            }
            let Some(found) = found else { return Ok(None) };
            entries.push(found);
        }
        Ok((!entries.is_empty()).then_some(entries))
    }

    /// Removes the owner's entries that `goes` accepts. Also removes the owner's chains that no other owner's rule
    /// leads to. One transaction makes all changes, except for owners with very many entries. Returns the number of
    /// removed entries and chains together.
    ///
    /// `handles` are the handles of all entries of the owner, and `places` are their chains, if known. If the handles
    /// still belong to the owner, no other entries are read. A rule's comment is read before the rule is deleted.
    ///
    /// A foreign rule that leads to a chain is an error (`EBUSY`). Missing rules are no error.
    pub(crate) fn remove(
        &self,
        nft: &mut Nft,
        handles: &[u64],
        places: &[&'static str],
        goes: impl Fn(&NftRule) -> bool,
    ) -> Result<usize, FirewallError> {
        nft.change(|nft, batch| {
            let removal = match self.known_removal(nft, handles, places, &goes)? {
                Some(removal) => removal,
                None => self.removal(nft, &goes)?,
            };
            batch.may_be_parts();
            removal.put_into(batch);
            Ok(removal.entries.len() + removal.chains.len())
        })
    }

    /// Removes the owner's entries and chains if `may` accepts the entries. Returns the answer of `may`.
    pub(crate) fn remove_if(&self, nft: &mut Nft, may: impl Fn(&[NftRule]) -> bool) -> Result<bool, FirewallError> {
        nft.change(|nft, batch| {
            let own = self.shared.entries(nft)?.into_iter().map(|found| found.rule);
            let own: Vec<NftRule> = own.filter(|rule| self.mark.is_on(rule)).collect();
            let may = may(&own);
            if may {
                self.removal(nft, |_| true)?.put_into(batch);
            }
            Ok(may)
        })
    }

    /// Returns the objects that [`NftOwner::remove`] removes.
    pub(crate) fn removal(
        &self,
        nft: &mut Nft,
        goes: impl Fn(&NftRule) -> bool,
    ) -> Result<OwnedObjects<'_>, FirewallError> {
        let there = self.chains_there(nft)?;
        let nothing = !self.chains.is_empty() && there.is_empty();
        let all = if nothing { Vec::new() } else { self.shared.entries(nft)? };
        let (going, staying): (Vec<FoundRule>, Vec<FoundRule>) =
            all.into_iter().partition(|found| self.mark.is_on(&found.rule) && goes(&found.rule));
        let targets: Vec<String> = staying.iter().filter_map(|found| self.shared.target(&found.rule)).collect();
        // If a chain stays, the chains that it leads to stay too.
        let mut held = match &self.outer {
            Some(outer) => nft.chain(self.shared.table, outer)?.is_some(),
            None => false,
        };
        let mut chains = Vec::new();
        for chain in &self.chains {
            let is_there = there.contains(&chain.as_str());
            held |= targets.contains(chain);
            if is_there && !held {
                chains.push(chain.as_str());
            }
            held &= is_there;
        }
        let entries = going.iter().map(|found| (found.chain, found.rule.handle)).collect();
        Ok(OwnedObjects { table: self.shared.table, entries, chains })
    }

    /// Works as [`NftOwner::removal`], but finds the entries by their handles. `None` if an entry is missing, if `goes`
    /// refuses an entry, or if the kernel counts other rules that lead to the owner's chains.
    fn known_removal(
        &self,
        nft: &mut Nft,
        handles: &[u64],
        places: &[&'static str],
        goes: impl Fn(&NftRule) -> bool,
    ) -> Result<Option<OwnedObjects<'_>>, FirewallError> {
        let Some(known) = self.known(nft, handles, places)? else { return Ok(None) };
        if !known.iter().all(|found| goes(&found.rule)) {
            return Ok(None);
        }
        let mut targets: Vec<String> = known.iter().filter_map(|found| found.rule.target()).collect();
        for chain in &self.chains {
            let uses = nft.chain(self.shared.table, chain)?.map(|state| state.uses);
            let rules = nft.rules(self.shared.table, chain)?;
            let leading = targets.iter().filter(|target| *target == chain).count();
            if uses != u32::try_from(rules.len() + leading).ok() {
                return Ok(None);
            }
            targets.extend(rules.iter().filter_map(NftRule::target));
        }
        let entries = known.iter().map(|found| (found.chain, found.rule.handle)).collect();
        Ok(Some(OwnedObjects {
            table: self.shared.table,
            entries,
            chains: self.chains.iter().map(String::as_str).collect(),
        }))
    }
}

impl SharedTable {
    /// Returns the chain that an entry of this kind leads to; `None` for foreign rules.
    fn target(&self, rule: &NftRule) -> Option<String> {
        rule.commented(self.kind.as_bytes()).then(|| rule.target()).flatten()
    }
}

/// The objects of an owner that will be removed.
pub(crate) struct OwnedObjects<'a> {
    table: Table,
    /// The shared chain of each entry, and the entry's handle.
    pub(crate) entries: Vec<(&'static str, u64)>,
    pub(crate) chains: Vec<&'a str>,
}

impl OwnedObjects<'_> {
    /// Adds the deletions to a batch. Entries come first, because a chain that a rule jumps to can't be deleted.
    fn put_into(&self, batch: &mut Batch) {
        for (chain, handle) in &self.entries {
            batch.delete_rule(self.table, chain, *handle);
        }
        for chain in &self.chains {
            batch.flush_chain(self.table, chain);
        }
        for chain in &self.chains {
            batch.delete_chain(self.table, chain);
        }
    }

    /// Returns the `nft` commands for the removal.
    pub(crate) fn commands(&self) -> Vec<String> {
        let table = self.table;
        let entry = |(chain, handle): &(&str, u64)| format!("nft delete rule {table} {chain} handle {handle}");
        let mut commands: Vec<String> = self.entries.iter().map(entry).collect();
        for command in ["flush", "delete"] {
            commands.extend(self.chains.iter().map(|chain| format!("nft {command} chain {table} {chain}")));
        }
        commands
    }
}
