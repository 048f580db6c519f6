//! The firewall plugin's rules with the system's iptables: addresses that the node forwards, and bridges that other
//! networks can't reach.
//!
//! Chains, rules, comments and their order are the native plugin's. So Postern and the native plugin find and remove
//! each other's rules. The rules are in table `filter` of the address's family:
//!
//! ```text
//! -A FORWARD -j CNI-ISOLATION-STAGE-1            before the next rule, or nothing would be isolated
//! -A FORWARD -j CNI-FORWARD
//! -A CNI-FORWARD -j <admin chain>
//! -A CNI-FORWARD -d <address> -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
//! -A CNI-FORWARD -s <address> -j ACCEPT
//! -A CNI-ISOLATION-STAGE-1 -i <bridge> -o <bridge> -j DROP            policy `isolated`
//! -A CNI-ISOLATION-STAGE-1 -i <bridge> ! -o <bridge> -j CNI-ISOLATION-STAGE-2
//! -A CNI-ISOLATION-STAGE-1 -j RETURN
//! -A CNI-ISOLATION-STAGE-2 -o <bridge> -j DROP
//! -A CNI-ISOLATION-STAGE-2 -j RETURN
//! ```
//!
//! The rules of an address name no owner, because the native form has no room for an owner. Only the attachment's
//! record shows the owner. After DEL, the chains stay, and the rules of a bridge stay until `postern gc --node`.

use super::prelude::*;
use super::presence::only_programs;
use super::rule::ANSWERS;
use postern_types::{IngressPolicy, IptablesVariant};

const FORWARD: &str = "FORWARD";
/// The chain of accepted addresses.
pub(crate) const CHAIN: &str = "CNI-FORWARD";
const STAGES: [&str; 2] = ["CNI-ISOLATION-STAGE-1", "CNI-ISOLATION-STAGE-2"];

// The native plugin's texts.
const RULES: &str = "CNI firewall plugin rules";
const OVERRIDES: &str = "CNI firewall plugin admin overrides";
const EITHER: &str = "same-bridge|isolated";

fn of_policy(policy: &str) -> String {
    format!("{RULES} (ingressPolicy: {policy})")
}

/// Returns both rules of an address.
fn of_address(address: IpAddr) -> [IptablesRule; 2] {
    let (net, accept) = (Some((true, IpNet::from(address))), || IptablesRule::new(CHAIN, Target::Accept));
    let matches = vec![Match::State((true, ANSWERS))];
    [IptablesRule { destination: net, matches, ..accept() }, IptablesRule { source: net, ..accept() }]
}

/// Returns the rules that lead to the rules of addresses.
fn leading(admin: &str) -> [IptablesRule; 2] {
    [
        IptablesRule::new(FORWARD, Target::jump(CHAIN)).commented(RULES),
        IptablesRule::new(CHAIN, Target::jump(admin)).commented(OVERRIDES),
    ]
}

fn first(rule: IptablesRule) -> (IptablesPlace, IptablesRule) {
    (IptablesPlace::First, rule)
}

fn last(rule: IptablesRule) -> (IptablesPlace, IptablesRule) {
    (IptablesPlace::Last, rule)
}

fn owner(home: &'static str) -> IptablesOwner {
    IptablesOwner { home, ..IptablesOwner::default() }
}

/// Returns all rules for these addresses of one family.
fn admission(addrs: &[IpNet], admin: &str) -> IptablesRuleSet {
    let own = addrs.iter().flat_map(|address| of_address(address.addr())).map(last);
    let rules = leading(admin).into_iter().map(first).chain(own).collect();
    IptablesRuleSet { owner: owner(CHAIN), shared: vec![CHAIN.to_owned(), admin.to_owned()], rules }
}

/// Returns the rule that leads to all isolation.
fn to_isolation() -> IptablesRule {
    IptablesRule::new(FORWARD, Target::jump(STAGES[0])).commented(&of_policy(EITHER))
}

/// Returns the bridge's own rules. They are added in this order, each before the rules that exist already.
fn of_bridge(bridge: &str, ingress: IngressPolicy) -> Vec<IptablesRule> {
    let [stage1, stage2] = STAGES;
    let link = |is| Some((is, bridge.to_owned()));
    let own = of_policy(ingress.name());
    let leaves =
        IptablesRule { input: link(true), output: link(false), ..IptablesRule::new(stage1, Target::jump(stage2)) };
    let enters = IptablesRule { output: link(true), ..IptablesRule::new(stage2, Target::Drop) };
    let mut rules = vec![leaves.commented(&own), enters.commented(&of_policy(EITHER))];
    if ingress == IngressPolicy::Isolated {
        let stays = IptablesRule { input: link(true), output: link(true), ..IptablesRule::new(stage1, Target::Drop) };
        rules.push(stays.commented(&own));
    }
    rules
}

/// Returns all rules that isolate a bridge, in one family.
fn isolation(bridge: &str, ingress: IngressPolicy) -> IptablesRuleSet {
    let ends = STAGES.map(|stage| last(IptablesRule::new(stage, Target::Return).commented(&of_policy(EITHER))));
    let rules = [first(to_isolation())].into_iter().chain(of_bridge(bridge, ingress).into_iter().map(first));
    IptablesRuleSet {
        owner: owner(STAGES[0]),
        shared: STAGES.map(str::to_owned).into(),
        rules: rules.chain(ends).collect(),
    }
}

/// Returns the changes that complete the set. The jump to the isolation must be before the jump to the accepted
/// addresses. A native plugin puts a missing jump at the beginning, so the order can be wrong.
fn changes(set: &IptablesRuleSet, saved: &SavedTable) -> Vec<TableChange> {
    let mut changes = set.additions(saved);
    let jump = to_isolation();
    let place = |wanted: &IptablesRule| saved.rules.iter().enumerate().find(|(_, saved)| saved.rule == *wanted);
    let [forward, _] = leading("");
    let Some((at, there)) = place(&jump) else { return changes };
    let is_behind = match place(&forward) {
        None => changes.contains(&TableChange::Add { rule: forward, first: true }),
        Some((forward, _)) => forward < at,
    };
    if is_behind {
        changes.extend([TableChange::Delete(there.clone()), TableChange::Add { rule: jump, first: true }]);
    }
    changes
}

/// The chains in which the order of rules matters. They have few rules, even if there are many attachments.
const ORDERED: [&str; 3] = [FORWARD, STAGES[0], STAGES[1]];

/// Completes a set. `is_first` says that the owner has no rules yet. Returns the number of changes, and the handles of
/// the new rules of addresses.
fn complete(
    set: &IptablesRuleSet,
    is_first: bool,
    programs: &Programs<'_>,
) -> Result<(usize, Vec<u64>), FirewallError> {
    let scope = Scope { entire: &ORDERED, is_first, ..Scope::of_sets(FILTER, std::slice::from_ref(set)) };
    programs.change(&scope, |saved| changes(set, saved))
}

/// Returns the handles of one family's rules. `handles` are all handles that an effect noted, in the order of
/// [`admit`]. `all` are the addresses of the effect.
fn handles_of<'a>(handles: &'a [u64], v6: bool, all: &[IpNet]) -> &'a [u64] {
    let of_v4 = 2 * all.iter().filter(|address| address.addr().is_ipv4()).count();
    match handles.split_at_checked(of_v4).filter(|_| handles.len() == 2 * all.len()) {
        Some((_, of_v6)) if v6 => of_v6,
        Some((of_v4, _)) => of_v4,
        None => handles,
    }
}

/// Makes sure that traffic from each address, and answers to this traffic, are forwarded. `admin` is the chain of the
/// administrator's rules, which come first. With `is_first`, the attachment has no rules yet, and no search is made.
/// `variant` is the variant of earlier rules. With `None`, the variant for new rules is used.
///
/// Returns the handles of the addresses' rules if all rules are new and were made over netlink. The record keeps the
/// handles, to find the rules again.
///
/// # Errors
/// A program of iptables is missing or fails, or the deadline passes.
pub fn admit(
    addrs: &[IpNet],
    admin: &str,
    is_first: bool,
    variant: Option<IptablesVariant>,
    runner: ProgramRunner<'_>,
) -> Result<Vec<u64>, FirewallError> {
    let mut handles = Vec::new();
    for (v6, addrs) in by_family(addrs) {
        handles.extend(complete(&admission(&addrs, admin), is_first, &Programs::locate_in(variant, v6, runner)?)?.1);
    }
    Ok(if handles.len() == 2 * addrs.len() { handles } else { Vec::new() })
}

/// Makes sure that a bridge is isolated in these families (true for IPv6). Returns the number of changes.
///
/// # Errors
/// As [`admit`].
pub fn isolate(
    bridge: &str,
    ingress: IngressPolicy,
    families: &[bool],
    runner: ProgramRunner<'_>,
) -> Result<usize, FirewallError> {
    let mut count = 0;
    for v6 in families {
        count += complete(&isolation(bridge, ingress), false, &Programs::locate(*v6, runner)?)?.0;
    }
    Ok(count)
}

/// Returns the first rule of these addresses that is missing, in the native plugin's words; `None` if all rules exist.
/// `isolated` is a bridge with its policy. With handles from [`admit`], no other owner's rules are read.
///
/// # Errors
/// As [`admit`].
pub fn missing_rule(
    numbers: &AddressHandles,
    admin: Option<&str>,
    isolated: Option<(&str, IngressPolicy)>,
    runner: ProgramRunner<'_>,
) -> Result<Option<String>, FirewallError> {
    let bridge = isolated.map(|(bridge, _)| bridge);
    for (v6, addrs) in by_family(&numbers.addresses) {
        let own: Vec<IptablesRuleSet> = admin.into_iter().map(|admin| admission(&addrs, admin)).collect();
        let of_bridge: Vec<IptablesRuleSet> =
            isolated.into_iter().map(|(bridge, policy)| isolation(bridge, policy)).collect();
        let both = [own.as_slice(), &of_bridge].concat();
        let mut missing = missing_in(numbers, v6, &both, bridge, runner)?;
        // The bridge's rules stay when attachments go, and can be in another variant than the rules of an address.
        if missing.is_some() && both.len() == 2 {
            missing = missing_in(numbers, v6, &own, None, runner)?;
            if missing.is_none() {
                missing = missing_in(&AddressHandles::default(), v6, &of_bridge, bridge, runner)?;
            }
        }
        if missing.is_some() {
            return Ok(missing);
        }
    }
    Ok(None)
}

/// As [`missing_rule`], for sets of one family: `None` if one possible place has all rules.
fn missing_in(
    numbers: &AddressHandles,
    v6: bool,
    sets: &[IptablesRuleSet],
    bridge: Option<&str>,
    runner: ProgramRunner<'_>,
) -> Result<Option<String>, FirewallError> {
    let known = handles_of(&numbers.handles, v6, &numbers.addresses);
    let scope = Scope { entire: &ORDERED, known, ..Scope::of_sets(FILTER, sets) };
    let mut first = None;
    for place in Programs::places(numbers.recorded, v6, FILTER, runner) {
        match missing_of(&place.look_once(&scope)?, sets, bridge) {
            None => return Ok(None),
            missing => first = first.or(missing),
        }
    }
    // If no place is possible, all rules are missing.
    Ok(first.or_else(|| missing_of(&SavedTable::default(), sets, bridge)))
}

/// Returns the first rule that a table lacks.
fn missing_of(saved: &SavedTable, sets: &[IptablesRuleSet], bridge: Option<&str>) -> Option<String> {
    if let Some((_, rule)) = sets.iter().flat_map(|set| &set.rules).find(|(_, rule)| !saved.has(rule)) {
        // The rules of an address are named without their chain.
        let is_of_address = rule.chain == CHAIN && rule.target == Some(Target::Accept);
        let chain = if is_of_address { String::new() } else { format!("{} ", rule.chain) };
        return Some(format!("expected {chain}rule [{}] not found", spec(rule)));
    }
    let bridge = bridge.filter(|_| sets.iter().any(|set| !changes(set, saved).is_empty()))?;
    Some(format!("expected {} before {CHAIN} in {FORWARD}: bridge {bridge} is not isolated", STAGES[0]))
}

/// Returns the rule as the native plugin writes it in its messages: without its chain, and without quotes.
fn spec(rule: &IptablesRule) -> String {
    rule.line().split_once(' ').map(|(_, spec)| spec.replace('"', "")).unwrap_or_default()
}

/// Removes all copies of these rules; with handles, only the rules that have these handles.
fn take_away(
    rules: &[IptablesRule],
    home: &'static str,
    known: &[u64],
    programs: &Programs<'_>,
) -> Result<usize, FirewallError> {
    let scope = Scope { known, only_known: !known.is_empty(), ..Scope::of_rules(FILTER, rules, home) };
    let plan = |saved: &SavedTable| owner(home).removals(saved, |rule| rules.contains(rule));
    programs.change(&scope, plan).map(|(count, _)| count)
}

/// The kernel's numbers of the rules of [`admit`], and of their tables, as in [`super::RuleHandles`].
#[derive(Clone, Debug, Default)]
pub struct AddressHandles {
    /// The addresses.
    pub addresses: Vec<IpNet>,
    /// The handles of the addresses' rules.
    pub handles: Vec<u64>,
    /// The handles of the tables, IPv4 first; empty if they are not known.
    pub tables: Vec<u64>,
    /// The place of the rules, by their record.
    pub recorded: Recorded,
}

/// Returns the handles of the tables of these addresses' families, for [`AddressHandles`]. Empty if a table is missing,
/// or if only programs of iptables can read the rules. If the handles are the same before and after [`admit`], the new
/// rules are in these tables.
#[must_use]
pub fn tables(addrs: &[IpNet], runner: ProgramRunner<'_>) -> Vec<u64> {
    numbers::tables(FILTER, addrs, runner)
}

impl AddressHandles {
    /// True if these are the numbers of all rules, and the tables still exist.
    fn hold(&self, runner: ProgramRunner<'_>) -> bool {
        !self.tables.is_empty()
            && self.handles.len() == 2 * self.addresses.len()
            && tables(&self.addresses, runner) == self.tables
    }

    /// Removes these rules without reading them. False if a table or a rule is gone, or if the numbers are not known.
    ///
    /// # Errors
    /// The deadline passes.
    pub fn withdraw(&self, runner: ProgramRunner<'_>) -> Result<bool, FirewallError> {
        if !self.hold(runner) {
            return Ok(false);
        }
        for ((v6, _), noted) in by_family(&self.addresses).zip(&self.tables) {
            let handles = handles_of(&self.handles, v6, &self.addresses);
            let rules: Vec<(&str, u64)> = handles.iter().map(|handle| (CHAIN, *handle)).collect();
            match Programs::nft(v6, runner).without(|nft| nft.delete_numbered(table(v6, FILTER), *noted, &rules)) {
                Some(Ok(true)) => {}
                Some(Err(error)) if error.is_timeout() => return Err(error),
                // The caller looks for the rules by their content.
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// True if only programs of iptables can read or change these rules. False if no program of iptables is installed.
/// `noted` are the numbers of the rules that a run may read or change; `None` means all rules.
#[must_use]
pub fn needs_program(runner: ProgramRunner<'_>, noted: Option<&[AddressHandles]>) -> bool {
    // Rules that can be made over netlink can also be removed over netlink.
    let unsure: Vec<&AddressHandles> = noted.into_iter().flatten().filter(|numbers| !numbers.hold(runner)).collect();
    only_programs(FILTER, runner, |nft, v6| {
        if noted.is_none() {
            return netlink::look(nft, v6, &Scope::whole(FILTER), false).map(|_| true);
        }
        for AddressHandles { addresses, handles, .. } in &unsure {
            let (own, known) = (rules_of(addresses, v6), handles_of(handles, v6, addresses));
            let scope = Scope { known, ..Scope::of_rules(FILTER, &own, CHAIN) };
            nft.look(|nft| netlink::look(nft, v6, &scope, false))?;
        }
        nft.look(|nft| netlink::look(nft, v6, &Scope::of_chains(FILTER, &ORDERED), false)).map(|_| true)
    })
}

/// True if the rules with these handles exist, and are all rules that [`admit`] makes for these addresses. False if
/// only programs of iptables can read the rules.
#[must_use]
pub fn has(addrs: &[IpNet], handles: &[u64], runner: ProgramRunner<'_>) -> bool {
    handles.len() == 2 * addrs.len()
        && by_family(addrs).map(|(v6, _)| v6).all(|v6| {
            let (own, known) = (rules_of(addrs, v6), handles_of(handles, v6, addrs));
            let scope = Scope { known, only_known: true, ..Scope::of_rules(FILTER, &own, CHAIN) };
            let look = |nft: &mut Nft| nft.look(|nft| netlink::look(nft, v6, &scope, false));
            let seen = Programs::nft(v6, runner).without(look).and_then(Result::ok);
            seen.is_some_and(|saved| saved.rules.len() == known.len() && own.iter().all(|rule| saved.has(rule)))
        })
}

/// Returns the rules of these addresses of one family.
fn rules_of(addrs: &[IpNet], v6: bool) -> Vec<IptablesRule> {
    let of_family = addrs.iter().filter(|address| address.addr().is_ipv6() == v6);
    of_family.flat_map(|address| of_address(address.addr())).collect()
}

/// Removes all copies of the rules of these addresses, wherever they are. With handles from [`admit`], only one
/// attachment's rules are removed. Returns the number of changes.
///
/// # Errors
/// A program of iptables that a record's rules need is missing or fails, or the deadline passes.
pub fn withdraw(
    addrs: &[IpNet],
    handles: &[u64],
    recorded: Recorded,
    runner: ProgramRunner<'_>,
) -> Result<usize, FirewallError> {
    let mut changes = 0;
    for v6 in by_family(addrs).map(|(v6, _)| v6) {
        let (own, handles) = (rules_of(addrs, v6), handles_of(handles, v6, addrs));
        changes += remove_from_each(recorded, v6, FILTER, runner, |place| take_away(&own, CHAIN, handles, place))?;
    }
    Ok(changes)
}

/// Returns the addresses that have a rule of the firewall plugin, in both families, whichever program made the rule.
/// Changes nothing.
///
/// # Errors
/// As [`withdraw`].
pub fn list(runner: ProgramRunner<'_>) -> Result<Vec<IpAddr>, FirewallError> {
    let mut addresses = Vec::new();
    for SavedRule { rule, .. } in Tables::look(FILTER, runner)?.rules() {
        let address = rule.source.or(rule.destination).map(|(_, net)| net.addr());
        let is_of = |address: &IpAddr| of_address(*address).contains(rule) && !addresses.contains(address);
        addresses.extend(address.filter(is_of));
    }
    Ok(addresses)
}

/// Removes the rules of a bridge, whatever its policy, in both families. Returns the number of changes.
///
/// # Errors
/// As [`withdraw`].
pub fn open(bridge: &str, runner: ProgramRunner<'_>) -> Result<usize, FirewallError> {
    let own: Vec<IptablesRule> = [IngressPolicy::SameBridge, IngressPolicy::Isolated]
        .into_iter()
        .flat_map(|ingress| of_bridge(bridge, ingress))
        .collect();
    let mut changes = 0;
    for programs in Programs::of_all(FILTER, runner) {
        changes += take_away(&own, STAGES[0], &[], &programs)?;
    }
    Ok(changes)
}

impl Tables {
    /// True if all rules that isolate this bridge exist, in the right order, in these families (true for IPv6).
    #[must_use]
    pub fn isolates(&self, bridge: &str, ingress: IngressPolicy, families: &[bool]) -> bool {
        let set = isolation(bridge, ingress);
        !self.0.is_empty() && families.iter().all(|v6| self.of(*v6).any(|saved| changes(&set, saved).is_empty()))
    }

    /// True if the rules of this address exist, and the rule that leads to them exists.
    #[must_use]
    pub fn forwards(&self, address: IpAddr) -> bool {
        let [leading, _] = leading("");
        self.of(address.is_ipv6())
            .any(|saved| saved.has(&leading) && of_address(address).iter().all(|rule| saved.has(rule)))
    }
}

/// True if there may be rules of the firewall plugin in one of the families: accepted addresses, or isolated bridges.
/// This question takes microseconds. If the answer is false, the caller need not call [`withdraw`], which may start
/// programs for milliseconds.
///
/// # Errors
/// The kernel refuses to show its nftables, or the deadline passes.
pub fn may_be_admitted(nft: &mut Nft) -> Result<bool, FirewallError> {
    Ok(has_legacy(FILTER) || has_chain(nft, FILTER, &[CHAIN, STAGES[0]])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules that the native plugin (1.9.1) leaves for an isolated bridge and one address.
    const NATIVE: &str = r#"*filter
:FORWARD ACCEPT [0:0]
:CNI-ADMIN - [0:0]
:CNI-FORWARD - [0:0]
:CNI-ISOLATION-STAGE-1 - [0:0]
:CNI-ISOLATION-STAGE-2 - [0:0]
-A FORWARD -m comment --comment "CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)" -j CNI-ISOLATION-STAGE-1
-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD
-A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN
-A CNI-FORWARD -d 10.1.0.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A CNI-FORWARD -s 10.1.0.2/32 -j ACCEPT
-A CNI-ISOLATION-STAGE-1 -i br0 -o br0 -m comment --comment "CNI firewall plugin rules (ingressPolicy: isolated)" -j DROP
-A CNI-ISOLATION-STAGE-1 -i br0 ! -o br0 -m comment --comment "CNI firewall plugin rules (ingressPolicy: isolated)" -j CNI-ISOLATION-STAGE-2
-A CNI-ISOLATION-STAGE-1 -m comment --comment "CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)" -j RETURN
-A CNI-ISOLATION-STAGE-2 -o br0 -m comment --comment "CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)" -j DROP
-A CNI-ISOLATION-STAGE-2 -m comment --comment "CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)" -j RETURN
COMMIT
"#;

    fn addresses() -> Vec<IpNet> {
        vec!["10.1.0.2/24".parse().unwrap()]
    }

    #[test]
    fn native_rules_are_complete_and_removed() {
        let native = SavedTable::parse(NATIVE);
        let (admission, isolation) = (admission(&addresses(), "CNI-ADMIN"), isolation("br0", IngressPolicy::Isolated));
        assert!(changes(&admission, &native).is_empty() && changes(&isolation, &native).is_empty());
        let own = of_address("10.1.0.2".parse().unwrap());
        let gone = owner(CHAIN).removals(&native, |rule| own.contains(rule));
        assert_eq!(
            gone.iter().map(TableChange::to_string).collect::<Vec<_>>(),
            [
                "-D CNI-FORWARD -d 10.1.0.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
                "-D CNI-FORWARD -s 10.1.0.2/32 -j ACCEPT"
            ]
        );
        let lines: Vec<&str> = NATIVE.lines().filter(|line| line.starts_with("-A")).collect();
        let ours = admission.rules.iter().chain(&isolation.rules).map(|(_, rule)| format!("-A {}", rule.line()));
        for line in ours {
            assert!(lines.contains(&line.as_str()), "{line}");
        }
    }

    /// The rules of accepted addresses must not come before the isolation.
    #[test]
    fn the_isolation_stays_before_the_accepted_addresses() {
        let alone: String =
            NATIVE.lines().filter(|line| !line.contains("CNI-FORWARD")).map(|line| format!("{line}\n")).collect();
        let added = changes(&admission(&addresses(), "CNI-ADMIN"), &SavedTable::parse(&alone));
        let (jump, added) = (to_isolation().line(), added.iter().map(TableChange::to_string).collect::<Vec<_>>());
        assert_eq!(added[added.len() - 2..], [format!("-D {jump}"), format!("-I {jump}")]);
        let mut lines: Vec<&str> = NATIVE.lines().collect();
        let at = lines.iter().position(|line| line.contains("-j CNI-ISOLATION-STAGE-1")).unwrap();
        lines.swap(at, at + 1);
        let swapped = SavedTable::parse(&lines.join("\n"));
        assert_eq!(changes(&isolation("br0", IngressPolicy::Isolated), &swapped).len(), 2);
    }
}
