//! The objects that all owners of rules share: a table, its base chains, and rules in them that belong to no owner.

use super::batch::{BaseChain, Batch, Table};
use super::rule::{Expression, NftRule, written};
use crate::{FirewallError, Nft};

/// The place for a shared rule that is missing from an existing chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NftPlace {
    First,
    Last,
}

/// A chain that all owners share.
#[derive(Debug, Default)]
pub(crate) struct SharedChain {
    pub(crate) name: &'static str,
    /// The hook of a base chain; `None` for a chain that other chains lead to.
    pub(crate) base: Option<BaseChain>,
    /// The error text if the base chain exists with another kind. `None` if any kind is allowed.
    pub(crate) wrong_kind: Option<&'static str>,
    pub(crate) comment: Option<&'static str>,
    /// Rules that belong to no owner, and lead to the owners' rules.
    pub(crate) rules: Vec<(NftPlace, Vec<Expression>)>,
    /// True if owners have rules in this chain.
    pub(crate) has_entries: bool,
}

/// A table, with the chains and rules that all owners share. No attachment removes the table.
#[derive(Debug)]
pub struct SharedTable {
    pub(crate) table: Table,
    pub(crate) comment: Option<&'static str>,
    pub(crate) chains: Vec<SharedChain>,
    /// The beginning of the comments of all owners' rules. Empty if they have no common beginning.
    pub(crate) kind: &'static str,
    /// True if only plugins use this name of a table. Then an empty table of this name is a plugin's, too.
    pub(crate) is_named_for_plugins: bool,
}

/// A rule of an owner in a shared chain.
#[derive(Clone, Debug)]
pub(crate) struct FoundRule {
    pub(crate) chain: &'static str,
    pub(crate) rule: NftRule,
}

impl std::fmt::Display for SharedTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "table {}", self.table)
    }
}

impl SharedTable {
    /// Returns the shared chains in which owners have rules.
    pub(crate) fn entry_chains(&self) -> impl Iterator<Item = &'static str> {
        self.chains.iter().filter(|chain| chain.has_entries).map(|chain| chain.name)
    }

    /// Returns all rules of the shared chains in which owners have rules, including foreign rules.
    pub(crate) fn entries(&self, nft: &mut Nft) -> Result<Vec<FoundRule>, FirewallError> {
        let mut entries = Vec::new();
        for chain in self.entry_chains() {
            entries.extend(nft.rules(self.table, chain)?.into_iter().map(|rule| FoundRule { chain, rule }));
        }
        Ok(entries)
    }

    /// Adds the table, its shared chains and the shared rules, if they are missing. `is_there` is true if the table
    /// exists.
    pub(crate) fn ensure(&self, nft: &mut Nft, batch: &mut Batch, is_there: bool) -> Result<(), FirewallError> {
        if !is_there {
            batch.add_table(self.table, self.comment);
        }
        for chain in &self.chains {
            let present = if is_there { nft.chain(self.table, chain.name)? } else { None };
            let Some(state) = present else {
                batch.add_chain(self.table, chain.name, chain.base, chain.comment);
                for (_, rule) in &chain.rules {
                    batch.append_rule(self.table, chain.name, rule, None);
                }
                continue;
            };
            if let (Some(base), Some(why)) = (chain.base, chain.wrong_kind)
                && state.kind.as_deref() != Some(base.kind)
            {
                return Err(FirewallError::new("use chain", format!("{} {}", self.table, chain.name), why));
            }
            if chain.rules.is_empty() {
                continue;
            }
            let present = nft.rules(self.table, chain.name)?;
            let missing = |place| {
                let of_place = move |(its, _): &&(NftPlace, Vec<Expression>)| *its == place;
                let rules = chain.rules.iter().filter(of_place).map(|(_, rule)| rule);
                rules.filter(|rule| !present.iter().any(|present| present.is(rule))).collect::<Vec<_>>()
            };
            // Each rule is put before the previously added rule.
            for rule in missing(NftPlace::First).into_iter().rev() {
                batch.add_rule(self.table, chain.name, true, false, written(rule, None));
            }
            for rule in missing(NftPlace::Last) {
                batch.append_rule(self.table, chain.name, rule, None);
            }
        }
        Ok(())
    }

    /// True if the shared rules are there; `rules` returns the rules of a chain.
    pub(crate) fn is_complete<R: AsRef<[NftRule]>>(
        &self,
        rules: &mut impl FnMut(&str) -> Result<R, FirewallError>,
    ) -> Result<bool, FirewallError> {
        for chain in self.chains.iter().filter(|chain| !chain.rules.is_empty()) {
            let present = rules(chain.name)?;
            if !chain.rules.iter().all(|(_, wanted)| present.as_ref().iter().any(|rule| rule.is(wanted))) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Deletes the table if nothing uses it. Returns true if the table was deleted.
    ///
    /// # Errors
    /// The kernel refuses, or the deadline passes.
    pub fn remove_if_unused(&self, nft: &mut Nft) -> Result<bool, FirewallError> {
        nft.change(|nft, batch| {
            let unused = self.is_unused(nft)?;
            if unused {
                batch.delete_table(self.table);
            }
            Ok(unused)
        })
    }

    /// True if the table exists and has only the shared objects: no attachment's rule and no foreign object.
    ///
    /// # Errors
    /// The kernel refuses to show the table, or the deadline passes.
    pub fn is_unused(&self, nft: &mut Nft) -> Result<bool, FirewallError> {
        let Some(state) = nft.table(self.table)? else { return Ok(false) };
        let mut chains = 0;
        for chain in &self.chains {
            if nft.chain(self.table, chain.name)?.is_none() {
                if self.is_named_for_plugins {
                    continue;
                }
                return Ok(false);
            }
            chains += 1;
            let is_foreign = |rule: &NftRule| !chain.rules.iter().any(|(_, shared)| rule.is(shared));
            if nft.rules(self.table, chain.name)?.iter().any(is_foreign) {
                return Ok(false);
            }
        }
        // A table counts all objects in it, sets and maps included. More than the shared chains means foreign objects.
        Ok(state.uses == chains)
    }

    /// Removes stale rules of all owners. Returns the removed rules. `is_stale` judges each rule alone. `spared` then
    /// takes rules of active owners out of the list. `spared` is called only if there is something to remove, and after
    /// the rules were read. If another program changed the rules meanwhile, `spared` is called again.
    pub(crate) fn retain(
        &self,
        nft: &mut Nft,
        is_stale: impl Fn(&NftRule) -> bool,
        spared: impl Fn(&mut Vec<FoundRule>) -> Result<(), FirewallError>,
    ) -> Result<Vec<NftRule>, FirewallError> {
        nft.change(|nft, batch| {
            let mut stale = self.entries(nft)?;
            stale.retain(|found| is_stale(&found.rule));
            if !stale.is_empty() {
                spared(&mut stale)?;
            }
            batch.may_be_parts();
            for FoundRule { chain, rule } in &stale {
                batch.delete_rule(self.table, chain, rule.handle);
            }
            Ok(stale.into_iter().map(|found| found.rule).collect())
        })
    }

    /// Returns the results of `read` for the rules of all owners.
    pub(crate) fn list<T>(&self, nft: &mut Nft, read: impl Fn(&NftRule) -> Option<T>) -> Result<Vec<T>, FirewallError> {
        Ok(self.entries(nft)?.iter().filter_map(|found| read(&found.rule)).collect())
    }
}
