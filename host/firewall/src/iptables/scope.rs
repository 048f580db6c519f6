//! The part of a table that a question is about: the chains of its owners, and the rules that are compared.

use super::saved::Rule;
use super::set::{Owner, RuleSet};

/// The part of a table that a question is about.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope<'a> {
    /// The owners' chains. All rules that lead to them matter, wherever they are.
    pub(super) own: Vec<&'a str>,
    /// Chains that all owners share.
    shared: Vec<&'a str>,
    /// The rules that may be there already.
    wanted: Vec<&'a Rule>,
    /// Handles of rules that led to the owners' chains when they were made. If they are all that lead there, no other
    /// rules are read.
    pub(super) known: &'a [u64],
    /// True if the question is about all chains and rules.
    pub(super) whole: bool,
}

impl<'a> Scope<'a> {
    /// A question about everything in the table.
    pub(super) fn whole() -> Self {
        Self { whole: true, ..Self::default() }
    }

    /// The question whether these sets are complete.
    pub(super) fn of_sets(sets: &'a [RuleSet]) -> Self {
        Self {
            own: sets.iter().flat_map(|set| &set.owner.chains).map(String::as_str).collect(),
            shared: sets.iter().flat_map(|set| &set.shared).map(String::as_str).collect(),
            wanted: sets.iter().flat_map(|set| &set.rules).map(|placed| &placed.rule).collect(),
            known: &[],
            whole: false,
        }
    }

    /// The same question, with the handles of the rules that lead to the owners' chains.
    pub(super) fn knowing(self, known: &'a [u64]) -> Self {
        Self { known, ..self }
    }

    /// The question what these owners have.
    pub(super) fn of_owners(owners: &'a [Owner]) -> Self {
        // Without a chain of its own, an owner's rules can be anywhere.
        if owners.iter().any(|owner| owner.chains.is_empty()) {
            return Self::whole();
        }
        Self { own: owners.iter().flat_map(|owner| &owner.chains).map(String::as_str).collect(), ..Self::default() }
    }

    /// Returns the chains that the question names, each once.
    pub(super) fn chains(&self) -> Vec<&'a str> {
        let of_rules = self.wanted.iter().map(|rule| rule.chain.as_str());
        let mut chains: Vec<&str> = self.own.iter().chain(&self.shared).copied().chain(of_rules).collect();
        chains.sort_unstable();
        chains.dedup();
        chains
    }

    /// Returns the chains whose rules have to be compared. Rules that lead to the owners' chains are found by these.
    pub(super) fn compared(&self) -> impl Iterator<Item = &'a str> {
        self.wanted.iter().filter(|rule| !self.leads(rule.target.as_deref())).map(|rule| rule.chain.as_str())
    }

    /// True if a rule with this target leads to a chain of the owners.
    pub(super) fn leads(&self, target: Option<&str>) -> bool {
        target.is_some_and(|target| self.own.contains(&target))
    }

    /// True if a rule that can't be read could be one that is compared, or leads to an owner's chain. `target` is the
    /// chain that it leads to. In a question about everything, the names of the plugins' chains begin with `plugins`.
    pub(super) fn concerns(&self, chain: &str, target: Option<&str>, plugins: &str) -> bool {
        if self.whole {
            return chain.starts_with(plugins) || target.is_some_and(|target| target.starts_with(plugins));
        }
        // A target that is no chain is a verdict, or an extension of iptables.
        let is_chain = |rule: &Rule| {
            let target = rule.target.as_deref()?;
            (!["ACCEPT", "DROP", "RETURN", "MASQUERADE", "DNAT", "MARK"].contains(&target)).then_some(target.to_owned())
        };
        let could_be = |rule: &&Rule| rule.chain == chain && is_chain(rule).as_deref() == target;
        self.leads(target) || self.wanted.iter().any(could_be)
    }
}
