//! What all owners of rules share: a table, its base chains, and rules in them that are nobody's.

use std::collections::HashMap;

use super::batch::{BaseChain, Batch, Table};
use super::rule::{Expression, Rule};
use crate::{FirewallError, Nft};

/// Deletions per transaction: what fits a netlink datagram several times over.
const CHUNK: usize = 500;

/// Where a shared rule goes if it is missing from a chain that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    First,
    Last,
}

/// A chain that all owners share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: &'static str,
    /// `None` for one that others lead to.
    pub(crate) base: Option<BaseChain>,
    /// What to say where the base chain is there and of another kind. `None`: it serves all the same.
    pub(crate) wrong_kind: Option<&'static str>,
    pub(crate) comment: Option<&'static str>,
    /// Rules that are nobody's: they lead to the owners'.
    pub(crate) rules: Vec<(Place, Vec<Expression>)>,
    /// Whether owners have rules in it.
    pub(crate) has_entries: bool,
}

/// A table with what all owners share in it.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) table: Table,
    pub(crate) comment: Option<&'static str>,
    pub(crate) shared: Vec<Shared>,
    /// What the comments of all owners' rules begin with; empty where they have nothing in common.
    pub(crate) kind: &'static str,
    /// Whether the table's name is the plugins' own: an empty one is theirs.
    pub(crate) is_named_for_plugins: bool,
}

/// A rule that an owner has in a shared chain.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) chain: &'static str,
    pub(crate) rule: Rule,
}

impl Ground {
    /// The shared chains in which owners have rules.
    pub(crate) fn entry_chains(&self) -> impl Iterator<Item = &'static str> {
        self.shared.iter().filter(|chain| chain.has_entries).map(|chain| chain.name)
    }

    /// The rules of all owners, and of strangers beside them.
    pub(crate) fn entries(&self, nft: &mut Nft) -> Result<Vec<Found>, FirewallError> {
        let mut entries = Vec::new();
        for chain in self.entry_chains() {
            entries.extend(nft.rules(self.table, chain)?.into_iter().map(|rule| Found { chain, rule }));
        }
        Ok(entries)
    }

    /// Adds what is missing of the table, its shared chains and their rules. `is_there`: the table is.
    pub(crate) fn ensure(&self, nft: &mut Nft, batch: &mut Batch, is_there: bool) -> Result<(), FirewallError> {
        if !is_there {
            batch.add_table(self.table, self.comment);
        }
        for chain in &self.shared {
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
                let of_place = move |(its, _): &&(Place, Vec<Expression>)| *its == place;
                let rules = chain.rules.iter().filter(of_place).map(|(_, rule)| rule);
                rules.filter(|rule| !present.iter().any(|present| present.is(rule))).collect::<Vec<_>>()
            };
            // Each one is put before the one that was put there before it.
            for rule in missing(Place::First).into_iter().rev() {
                batch.insert_rule(self.table, chain.name, rule, None);
            }
            for rule in missing(Place::Last) {
                batch.append_rule(self.table, chain.name, rule, None);
            }
        }
        Ok(())
    }

    /// Whether the shared rules are there, of the rules that each chain has by `rules`.
    pub(crate) fn is_complete<R: AsRef<[Rule]>>(
        &self,
        rules: &mut impl FnMut(&str) -> Result<R, FirewallError>,
    ) -> Result<bool, FirewallError> {
        for chain in self.shared.iter().filter(|chain| !chain.rules.is_empty()) {
            let present = rules(chain.name)?;
            if !chain.rules.iter().all(|(_, wanted)| present.as_ref().iter().any(|rule| rule.is(wanted))) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the table is there and holds nothing but what all owners share.
    pub(crate) fn is_unused(&self, nft: &mut Nft) -> Result<bool, FirewallError> {
        let Some(state) = nft.table(self.table)? else { return Ok(false) };
        let mut chains = 0;
        for chain in &self.shared {
            if nft.chain(self.table, chain.name)?.is_none() {
                if self.is_named_for_plugins {
                    continue;
                }
                return Ok(false);
            }
            chains += 1;
            let strange = |rule: &Rule| !chain.rules.iter().any(|(_, shared)| rule.is(shared));
            if nft.rules(self.table, chain.name)?.iter().any(strange) {
                return Ok(false);
            }
        }
        // A table counts all that is in it, sets and maps included: more than the shared chains is somebody else's.
        Ok(state.uses == chains)
    }

    /// Removes those of the owners' rules that `pick` picks, and returns them. It is asked again while there are more than a
    /// transaction has room for, and when somebody has changed rules in between.
    pub(crate) fn remove(
        &self,
        nft: &mut Nft,
        mut pick: impl FnMut(Vec<Found>) -> Result<Vec<Found>, FirewallError>,
    ) -> Result<Vec<Rule>, FirewallError> {
        let mut removed = Vec::new();
        loop {
            let chunk = nft.change(|nft, batch| {
                let mut picked = pick(self.entries(nft)?)?;
                picked.truncate(CHUNK);
                for Found { chain, rule } in &picked {
                    batch.delete_rule(self.table, chain, rule.handle);
                }
                Ok(picked)
            })?;
            let last = chunk.len() < CHUNK;
            removed.extend(chunk.into_iter().map(|found| found.rule));
            if last {
                return Ok(removed);
            }
        }
    }

    /// Removes the rules of all owners but those who are to stay, and returns them. `is_stale` tells by the rules alone;
    /// `spared` then takes out of what is left whoever is at work: it is asked only if there is something to remove, and after
    /// the rules were read.
    pub(crate) fn retain(
        &self,
        nft: &mut Nft,
        is_stale: impl Fn(&Rule) -> bool,
        spared: impl Fn(&mut Vec<Found>) -> Result<(), FirewallError>,
    ) -> Result<Vec<Rule>, FirewallError> {
        self.remove(nft, |mut all| {
            all.retain(|found| is_stale(&found.rule));
            if !all.is_empty() {
                spared(&mut all)?;
            }
            Ok(all)
        })
    }

    /// What `read` makes of the rules of all owners.
    pub(crate) fn list<T>(&self, nft: &mut Nft, read: impl Fn(&Rule) -> Option<T>) -> Result<Vec<T>, FirewallError> {
        Ok(self.entries(nft)?.iter().filter_map(|found| read(&found.rule)).collect())
    }

    /// All rules of the table, by chain: for who compares many sets, and would be shown all rules each time.
    pub(crate) fn look(&self, nft: &mut Nft) -> Result<HashMap<String, Vec<Rule>>, FirewallError> {
        nft.rules_by_chain(self.table)
    }
}
