//! A set of iptables rules with one owner. This code makes, compares, removes and lists the rules of all tables and
//! chains.
//!
//! A set has rules in chains that all owners share, and may have its own chain. The own chain is removed when no rule
//! leads to it. The caller decides the content and the names of the rules.

use super::prelude::*;

/// One change of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TableChange {
    NewChain(String),
    /// At the chain's beginning (`first`) or end.
    Add {
        rule: IptablesRule,
        first: bool,
    },
    Delete(SavedRule),
    Flush(String),
    DeleteChain(String),
}

/// The place for a rule that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IptablesPlace {
    /// The beginning of the chain, before all other rules.
    First,
    /// Before the rules of this set with [`IptablesPlace::Last`], if such rules exist; otherwise the chain's end.
    Early,
    /// The end of the chain.
    Last,
}

/// An owner of rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct IptablesOwner {
    /// The comment of its rules, if a comment identifies them.
    pub(crate) comment: Option<String>,
    /// The owner's chain, if the owner has a chain.
    pub(crate) chain: Option<String>,
    /// The chain that has the rules that lead to the owner's chain. For an owner without a chain, the chain that has
    /// the owner's rules.
    pub(crate) home: &'static str,
}

/// All rules that an owner should have, in the order in which they are made.
#[derive(Clone, Debug, Default)]
pub(crate) struct IptablesRuleSet {
    pub(crate) owner: IptablesOwner,
    /// Chains that all owners share, except built-in chains of iptables. Missing shared chains are made. They are never
    /// removed.
    pub(crate) shared: Vec<String>,
    pub(crate) rules: Vec<(IptablesPlace, IptablesRule)>,
}

impl IptablesOwner {
    /// Returns the names of the owner's chain and comment. A name that the owner lacks is empty.
    pub(super) fn names(&self) -> (&str, &str) {
        (self.chain.as_deref().unwrap_or_default(), self.comment.as_deref().unwrap_or_default())
    }

    /// True if the rule is in the owner's chain.
    pub(super) fn has_inside(&self, rule: &IptablesRule) -> bool {
        self.chain.as_ref() == Some(&rule.chain)
    }

    pub(super) fn leads_here(&self, rule: &IptablesRule) -> bool {
        self.chain.is_some() && rule.target_chain() == self.chain.as_deref()
    }

    /// Returns the changes that remove the rules that `goes` accepts. If no other rule leads to the owner's chain, the
    /// chain is removed too. For an owner with a chain, `goes` is asked only about rules that lead to the chain. The
    /// rules in the chain are removed with the chain.
    pub(crate) fn removals(&self, saved: &SavedTable, goes: impl Fn(&IptablesRule) -> bool) -> Vec<TableChange> {
        let is_concerned = |saved: &&SavedRule| {
            (self.chain.is_none() || self.leads_here(&saved.rule)) && !self.has_inside(&saved.rule)
        };
        let (going, staying): (Vec<&SavedRule>, Vec<&SavedRule>) =
            saved.rules.iter().filter(is_concerned).partition(|saved| goes(&saved.rule));
        let mut changes: Vec<TableChange> = going.into_iter().cloned().map(TableChange::Delete).collect();
        if let Some(chain) = self.chain.as_ref().filter(|chain| staying.is_empty() && saved.chains.contains(chain)) {
            changes.extend([TableChange::Flush(chain.clone()), TableChange::DeleteChain(chain.clone())]);
        }
        changes
    }
}

impl IptablesRuleSet {
    /// Chooses the set that this owner uses. The two sets differ by the names of their chains. The first set is chosen,
    /// unless another owner's rules lead to the first set's chain, or the second set's chain is in use.
    fn choose<'a>([first, second]: &'a [Self; 2], saved: &SavedTable) -> &'a Self {
        let is_ours = |rule: &IptablesRule| rule.comment() == first.owner.comment.as_deref();
        let taken = saved.rules.iter().any(|saved| first.owner.leads_here(&saved.rule) && !is_ours(&saved.rule));
        let has = saved.rules.iter().any(|saved| second.owner.leads_here(&saved.rule));
        if taken || has { second } else { first }
    }

    /// Returns the changes that complete the set.
    pub(crate) fn additions(&self, saved: &SavedTable) -> Vec<TableChange> {
        let present: HashSet<&IptablesRule> = saved.rules.iter().map(|saved| &saved.rule).collect();
        let chains = self.shared.iter().chain(&self.owner.chain);
        let missing = chains.filter(|chain| !saved.chains.contains(chain));
        let mut changes: Vec<TableChange> = missing.cloned().map(TableChange::NewChain).collect();
        let mut made = HashSet::new();
        for (place, rule) in &self.rules {
            if present.contains(rule) || !made.insert(rule) {
                continue;
            }
            let is_there = |(its, other): &(IptablesPlace, IptablesRule)| {
                *its == IptablesPlace::Last && other.chain == rule.chain && present.contains(other)
            };
            let first = match place {
                IptablesPlace::First => true,
                IptablesPlace::Early => self.rules.iter().any(is_there),
                IptablesPlace::Last => false,
            };
            changes.push(TableChange::Add { rule: rule.clone(), first });
        }
        changes
    }

    /// Completes the set that the owner uses ([`IptablesRuleSet::choose`]), in table `nat`. Returns the handles of the
    /// new rules that lead to the owner's chain; the list is empty if iptables' programs made the rules.
    pub(crate) fn ensure(sets: &[Self; 2], programs: &Programs<'_>) -> Result<Vec<u64>, FirewallError> {
        let plan = |saved: &SavedTable| Self::choose(sets, saved).additions(saved);
        programs.change(&Scope::of_sets(NAT, sets), plan).map(|(_, handles)| handles)
    }

    /// True if the set that the owner uses is complete. Only the chains that matter are read. `known` are the handles
    /// of [`IptablesRuleSet::ensure`].
    pub(crate) fn check(sets: &[Self; 2], known: &[u64], programs: &Programs<'_>) -> Result<bool, FirewallError> {
        Ok(Self::is_complete(sets, &programs.look(&Scope { known, ..Scope::of_sets(NAT, sets) })?))
    }

    /// Works as [`IptablesRuleSet::check`], for a table that was read.
    pub(crate) fn is_complete(sets: &[Self; 2], saved: &SavedTable) -> bool {
        Self::choose(sets, saved).additions(saved).is_empty()
    }

    /// Makes the changes of [`IptablesOwner::removals`] in table `nat`, for these owners. `known` are the handles of
    /// [`IptablesRuleSet::ensure`]. Returns the number of changes.
    pub(crate) fn remove(
        owners: &[IptablesOwner],
        known: &[u64],
        programs: &Programs<'_>,
        goes: impl Fn(&IptablesRule) -> bool,
    ) -> Result<usize, FirewallError> {
        let plan = |saved: &SavedTable| owners.iter().flat_map(|owner| owner.removals(saved, &goes)).collect();
        programs.change(&Scope { known, ..Scope::of_owners(NAT, owners) }, plan).map(|(count, _)| count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set outside of table `nat`, with a shared chain, and a rule at a chain's beginning.
    fn set(container: &str, place: IptablesPlace) -> IptablesRuleSet {
        let own = format!("OWN-{container}");
        let rule = |text: String| IptablesRule::parse(&text);
        let rules = vec![
            (IptablesPlace::First, rule("FORWARD -j SHARED".into())),
            (place, rule(format!("{own} -p tcp -m conntrack --ctstate RELATED -j ACCEPT"))),
            (IptablesPlace::Last, rule(format!("{own} -j DROP"))),
            (IptablesPlace::Last, rule(format!("{own} -d 10.1.0.2/32 -j DNAT --to-destination 10.1.0.2:80"))),
            (IptablesPlace::Last, rule(format!("SHARED -m comment --comment \"{container}\" -j {own}"))),
        ];
        IptablesRuleSet {
            owner: IptablesOwner { comment: Some(container.to_owned()), chain: Some(own), home: "SHARED" },
            shared: vec!["SHARED".to_owned()],
            rules,
        }
    }

    /// Returns the table as `iptables-save` would show it after these changes.
    fn apply(table: &mut SavedTable, changes: &[TableChange]) {
        for change in changes {
            match change {
                TableChange::NewChain(chain) => table.chains.push(chain.clone()),
                TableChange::DeleteChain(gone) => table.chains.retain(|chain| chain != gone),
                TableChange::Flush(chain) => table.rules.retain(|saved| saved.rule.chain != *chain),
                TableChange::Delete(gone) => table.rules.retain(|saved| saved != gone),
                TableChange::Add { rule, first } => {
                    let made = SavedTable::parse(&format!("-A {}", rule.line())).rules;
                    let at = if *first { 0 } else { table.rules.len() };
                    table.rules.splice(at..at, made);
                }
            }
        }
    }

    fn lines(changes: &[TableChange]) -> Vec<String> {
        changes.iter().map(TableChange::to_string).collect()
    }

    #[test]
    fn any_table_and_chains() {
        let (one, two) = (set("one", IptablesPlace::Early), set("two", IptablesPlace::Early));
        let mut table = SavedTable::default();
        let first = one.additions(&table);
        apply(&mut table, &first);
        assert!(one.additions(&table).is_empty(), "{:?}", one.additions(&table));
        assert_eq!(table.rules[0].line(), "FORWARD -j SHARED");
        let second = two.additions(&table);
        let lines_of_second = lines(&second);
        assert!(!lines_of_second.iter().any(|line| line.contains("FORWARD") || line == "-N SHARED"), "{second:?}");
        apply(&mut table, &second);
        // A rule with `IptablesPlace::Early` is put before the existing rules.
        table.rules.retain(|saved| !saved.line().starts_with("OWN-one -p"));
        let repair = one.additions(&table);
        assert_eq!(lines(&repair), ["-I OWN-one -p tcp -m conntrack --ctstate RELATED -j ACCEPT"]);
        apply(&mut table, &repair);
        // A rule that stays keeps the chain that it leads to.
        let held = one.owner.removals(&table, |_| false);
        assert!(held.is_empty(), "{held:?}");
        let removals = one.owner.removals(&table, |rule| rule.comment() == one.owner.comment.as_deref());
        let wanted = ["-D SHARED -m comment --comment one -j OWN-one", "-F OWN-one", "-X OWN-one"];
        assert_eq!(lines(&removals), wanted);
        apply(&mut table, &removals);
        assert!(two.additions(&table).is_empty());
        assert_eq!(one.additions(&table).len(), 5);
    }

    #[test]
    fn rules_without_chains_go_one_by_one() {
        let rule = IptablesRule::parse("SHARED -s 10.1.0.2/32 -j ACCEPT");
        let owner = IptablesOwner::default();
        let table =
            SavedTable::parse("*filter\n:SHARED - [0:0]\n-A SHARED -s 10.1.0.2/32 -j ACCEPT\n-A SHARED -j DROP\n");
        assert_eq!(lines(&owner.removals(&table, |seen| *seen == rule)), ["-D SHARED -s 10.1.0.2/32 -j ACCEPT"]);
    }
}
