//! The part of a table that a question is about: the chains of its owners, and the rules that are compared.

use super::prelude::*;

/// The part of a table that a question is about.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope<'a> {
    pub(super) table: &'static str,
    /// The owners' chains. All rules that lead to these chains matter, in any chain.
    pub(super) own: Vec<&'a str>,
    /// Chains that all owners share.
    pub(super) shared: Vec<&'a str>,
    /// The rules that may exist already.
    pub(super) wanted: Vec<&'a IptablesRule>,
    /// The chains with the rules that lead to the owners' chains, or with the rules of an owner without chains.
    pub(super) homes: Vec<&'a str>,
    /// Handles of rules in `homes`, noted when the rules were made. If the handles lead to all rules in question, no
    /// other rules are read.
    pub(super) known: &'a [u64],
    /// Chains in which the order of rules matters.
    pub(super) entire: &'a [&'a str],
    /// True if the owner has no rules yet: `homes` are not searched.
    pub(super) is_first: bool,
    /// True if each copy of a rule counts.
    pub(super) counts: bool,
    /// True if only rules with known handles are asked for.
    pub(super) only_known: bool,
    /// True if the question is about all chains and rules.
    pub(super) whole: bool,
    /// True if the question is about the plugins' rules of all owners.
    pub(super) of_all: bool,
}

fn once(mut chains: Vec<&str>) -> Vec<&str> {
    chains.sort_unstable();
    chains.dedup();
    chains
}

impl<'a> Scope<'a> {
    /// A question about everything in a table.
    pub(super) fn whole(table: &'static str) -> Self {
        Self { table, whole: true, of_all: true, ..Self::default() }
    }

    /// A question about all rules of these chains.
    pub(super) fn of_chains(table: &'static str, chains: &'a [&'a str]) -> Self {
        Self { table, entire: chains, of_all: true, ..Self::default() }
    }

    /// The question whether these sets are complete.
    pub(super) fn of_sets(table: &'static str, sets: &'a [IptablesRuleSet]) -> Self {
        Self {
            table,
            own: sets.iter().filter_map(|set| set.owner.chain.as_deref()).collect(),
            shared: sets.iter().flat_map(|set| &set.shared).map(String::as_str).collect(),
            wanted: sets.iter().flat_map(|set| &set.rules).map(|(_, rule)| rule).collect(),
            homes: sets.iter().map(|set| set.owner.home).collect(),
            ..Self::default()
        }
    }

    /// A question about all copies of these rules, whose owner has no chains.
    pub(super) fn of_rules(table: &'static str, rules: &'a [IptablesRule], home: &'a str) -> Self {
        Self { table, wanted: rules.iter().collect(), homes: vec![home], counts: true, ..Self::default() }
    }

    /// A question about all rules of these owners.
    pub(super) fn of_owners(table: &'static str, owners: &'a [IptablesOwner]) -> Self {
        Self {
            table,
            own: owners.iter().filter_map(|owner| owner.chain.as_deref()).collect(),
            homes: owners.iter().map(|owner| owner.home).collect(),
            ..Self::default()
        }
    }

    /// Returns the chains that the question names, each once.
    pub(super) fn chains(&self) -> Vec<&'a str> {
        let of_rules = self.wanted.iter().map(|rule| rule.chain.as_str());
        let all = self.own.iter().chain(&self.shared).chain(self.entire).copied().chain(of_rules);
        once(all.collect())
    }

    /// Returns the rules that have to be compared, by their chains. Rules that lead to the owners' chains are left out,
    /// because these rules are found by their target.
    pub(super) fn compared(&self) -> Vec<(&'a str, Vec<&'a IptablesRule>)> {
        let is_searched =
            |rule: &&IptablesRule| !self.only_known && !self.leads(rule.target_chain()) && !self.is_new(rule);
        let searched: Vec<&IptablesRule> = self.wanted.iter().copied().filter(is_searched).collect();
        let chains = once(searched.iter().map(|rule| rule.chain.as_str()).collect());
        let of = |chain: &str| searched.iter().copied().filter(|rule| rule.chain == chain).collect();
        chains.into_iter().map(|chain| (chain, of(chain))).collect()
    }

    /// True if the owner has no chains, and makes this rule for the first time.
    pub(super) fn is_new(&self, rule: &IptablesRule) -> bool {
        self.is_first
            && self.own.is_empty()
            && self.homes.contains(&rule.chain.as_str())
            && !rule.target_chain().is_some_and(|chain| self.shared.contains(&chain))
            && self.names(rule)
    }

    /// True if the handle of a new rule is to be noted.
    pub(super) fn notes(&self, chain: &str, target: Option<&str>) -> bool {
        match self.own.is_empty() {
            true => self.homes.contains(&chain) && target.is_none(),
            false => self.leads(target) && !self.own.contains(&chain),
        }
    }

    /// True if this is one of the rules that the question names.
    pub(super) fn names(&self, rule: &IptablesRule) -> bool {
        self.wanted.contains(&rule)
    }

    /// True if a rule with this target leads to a chain of the owners.
    pub(super) fn leads(&self, target: Option<&str>) -> bool {
        target.is_some_and(|target| self.own.contains(&target))
    }

    /// True if an unreadable rule may be a compared rule, or leads to an owner's chain. In a question about all owners,
    /// `plugins` is the beginning of the names of the plugins' chains.
    pub(super) fn concerns(&self, rule: &IptablesRule, plugins: &str) -> bool {
        let target = rule.target_chain();
        if self.of_all {
            return rule.chain.starts_with(plugins) || target.is_some_and(|target| target.starts_with(plugins));
        }
        let could_be = |wanted: &&IptablesRule| wanted.chain == rule.chain && wanted.target_chain() == target;
        self.leads(target) || self.wanted.iter().any(could_be)
    }
}
