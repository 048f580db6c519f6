//! The firewall plugin's rules with the system's iptables: addresses that the node forwards, and bridges that others
//! don't reach.
//!
//! Chains, rules, comments and their order are the native plugin's own, so either side finds and removes what the other
//! made. They are in table `filter` of the address's family:
//!
//! ```text
//! -A FORWARD -j CNI-ISOLATION-STAGE-1            before the next, or nothing would be isolated
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
//! The rules of an address name no owner: there is no room for one in the native form. The attachment's record is the
//! owner. The chains stay, and so do the rules of a bridge until `postern gc --node`.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_netfilter::NetfilterProtoFamily;
use postern_types::IngressPolicy;

use super::netlink;
use super::programs::{ProgramRunner, Programs, families};
use super::saved::{Rule, SavedTable};
use super::scope::Scope;
use super::set::{Owner, Place, Placed, RuleSet};
use super::{FILTER, Tables, by_family, has_legacy};
use crate::nft::batch::Table;
use crate::{FirewallError, Nft};

const FORWARD: &str = "FORWARD";
/// The chain of accepted addresses.
pub(crate) const CHAIN: &str = "CNI-FORWARD";
const STAGES: [&str; 2] = ["CNI-ISOLATION-STAGE-1", "CNI-ISOLATION-STAGE-2"];

// The native plugin's texts.
const RULES: &str = "CNI firewall plugin rules";
const OVERRIDES: &str = "CNI firewall plugin admin overrides";
const EITHER: &str = "same-bridge|isolated";

fn rule(chain: &str, matches: &[&str], comment: Option<String>, target: &str) -> Rule {
    Rule {
        chain: chain.to_owned(),
        matches: matches.iter().map(|word| (*word).to_owned()).collect(),
        comment,
        target: Some(target.to_owned()),
        ..Rule::default()
    }
}

fn of_policy(policy: &str) -> Option<String> {
    Some(format!("{RULES} (ingressPolicy: {policy})"))
}

/// Returns both rules of an address.
fn of_address(address: IpAddr) -> [Rule; 2] {
    let net = IpNet::from(address);
    let established = ["-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED"];
    [
        Rule { destination: Some((true, net)), ..rule(CHAIN, &established, None, "ACCEPT") },
        Rule { source: Some(net), ..rule(CHAIN, &[], None, "ACCEPT") },
    ]
}

/// Returns the rules that lead to those of addresses.
fn leading(admin: &str) -> [Rule; 2] {
    [rule(FORWARD, &[], Some(RULES.to_owned()), CHAIN), rule(CHAIN, &[], Some(OVERRIDES.to_owned()), admin)]
}

fn first(rule: Rule) -> Placed {
    Placed { place: Place::First, rule }
}

fn last(rule: Rule) -> Placed {
    Placed { place: Place::Last, rule }
}

fn owner() -> Owner {
    Owner { table: FILTER, comment: None, chains: Vec::new() }
}

/// Returns all rules for these addresses of one family.
fn admission(addrs: &[IpNet], admin: &str) -> RuleSet {
    let own = addrs.iter().flat_map(|address| of_address(address.addr())).map(last);
    let rules = leading(admin).into_iter().map(first).chain(own).collect();
    RuleSet { owner: owner(), shared: vec![CHAIN.to_owned(), admin.to_owned()], rules }
}

/// Returns the rule that leads to all isolation.
fn to_isolation() -> Rule {
    rule(FORWARD, &[], of_policy(EITHER), STAGES[0])
}

/// Returns the bridge's own rules, in the order in which each is put before the others.
fn of_bridge(bridge: &str, ingress: IngressPolicy) -> Vec<Rule> {
    let [stage1, stage2] = STAGES;
    let own = of_policy(ingress.name());
    let mut rules = vec![
        rule(stage1, &["-i", bridge, "!", "-o", bridge], own.clone(), stage2),
        rule(stage2, &["-o", bridge], of_policy(EITHER), "DROP"),
    ];
    if ingress == IngressPolicy::Isolated {
        rules.push(rule(stage1, &["-i", bridge, "-o", bridge], own, "DROP"));
    }
    rules
}

/// Returns all rules that isolate a bridge, in one family.
fn isolation(bridge: &str, ingress: IngressPolicy) -> RuleSet {
    let ends = STAGES.map(|stage| last(rule(stage, &[], of_policy(EITHER), "RETURN")));
    let rules = [first(to_isolation())].into_iter().chain(of_bridge(bridge, ingress).into_iter().map(first));
    RuleSet { owner: owner(), shared: STAGES.map(str::to_owned).into(), rules: rules.chain(ends).collect() }
}

/// Returns the changes that complete the set. The jump to the isolation stays, or gets, before the jump to the accepted
/// addresses: native plugins put either at the beginning, whichever is missing.
fn changes(set: &RuleSet, saved: &SavedTable) -> Vec<String> {
    let mut changes = set.additions(saved);
    let jump = to_isolation();
    let place = |wanted: &Rule| saved.rules.iter().position(|saved| saved.rule == *wanted);
    let [forward, _] = leading("");
    let added = |rule: &Rule| changes.contains(&format!("-I {}", rule.line()));
    let is_behind = match (place(&jump), place(&forward)) {
        (Some(_), None) => added(&forward),
        (Some(jump), Some(forward)) => forward < jump,
        (None, _) => false,
    };
    if is_behind {
        changes.extend([format!("-D {}", jump.line()), format!("-I {}", jump.line())]);
    }
    changes
}

fn complete(set: &RuleSet, programs: &Programs<'_>) -> Result<usize, FirewallError> {
    programs.change(FILTER, |saved| changes(set, saved))
}

/// Makes sure that traffic from each address is forwarded, and answers to it. `admin` is the chain of the administrator's
/// rules, which go before.
///
/// # Errors
/// A program is missing or fails, or the deadline passes.
pub fn admit(addrs: &[IpNet], admin: &str, runner: ProgramRunner<'_>) -> Result<(), FirewallError> {
    for (v6, addrs) in by_family(addrs) {
        complete(&admission(&addrs, admin), &Programs::locate(v6, runner)?)?;
    }
    Ok(())
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
        count += complete(&isolation(bridge, ingress), &Programs::locate(*v6, runner)?)?;
    }
    Ok(count)
}

/// Returns the first rule of these addresses that is missing, in the native plugin's words; `None` if all are there.
/// `isolated` is a bridge with its policy.
///
/// # Errors
/// As [`admit`].
pub fn missing_rule(
    addrs: &[IpNet],
    admin: Option<&str>,
    isolated: Option<(&str, IngressPolicy)>,
    runner: ProgramRunner<'_>,
) -> Result<Option<String>, FirewallError> {
    for (v6, addrs) in by_family(addrs) {
        let saved = Programs::locate(v6, runner)?.look(FILTER)?;
        if let Some(admin) = admin {
            if let Some(rule) = leading(admin).iter().find(|rule| !saved.has(rule)) {
                return Ok(Some(format!("expected {} rule [{}] not found", rule.chain, spec(rule))));
            }
            let mut own = addrs.iter().flat_map(|address| of_address(address.addr()));
            if let Some(rule) = own.find(|rule| !saved.has(rule)) {
                return Ok(Some(format!("expected rule [{}] not found", spec(&rule))));
            }
        }
        if let Some((bridge, ingress)) = isolated {
            let set = isolation(bridge, ingress);
            if let Some(Placed { rule, .. }) = set.rules.iter().find(|placed| !saved.has(&placed.rule)) {
                return Ok(Some(format!("expected {} rule [{}] not found", rule.chain, spec(rule))));
            }
            if !changes(&set, &saved).is_empty() {
                return Ok(Some(format!(
                    "expected {} before {CHAIN} in {FORWARD}: bridge {bridge} is not isolated",
                    STAGES[0]
                )));
            }
        }
    }
    Ok(None)
}

/// Returns the rule as the native plugin writes it in its messages.
fn spec(rule: &Rule) -> String {
    let mut words = Vec::new();
    words.extend(rule.source.map(|net| format!("-s {net}")));
    words.extend(rule.destination.map(|(_, net)| format!("-d {net}")));
    words.extend((!rule.matches.is_empty()).then(|| rule.matches.join(" ")));
    words.extend(rule.comment.iter().map(|comment| format!("-m comment --comment {comment}")));
    words.extend(rule.target.iter().map(|target| format!("-j {target}")));
    words.join(" ")
}

/// Removes these rules, each as often as it is there.
fn take_away(rules: &[Rule], programs: &Programs<'_>) -> Result<usize, FirewallError> {
    programs.change(FILTER, |saved| owner().removals(saved, |rule| rules.contains(rule)))
}

/// True if only programs can read or change these rules. It is false if no program is installed.
#[must_use]
pub fn needs_program(runner: ProgramRunner<'_>) -> bool {
    families(runner).unwrap_or_default().iter().any(|programs| {
        let read = |nft: &mut Nft| netlink::look(nft, programs.v6, FILTER, &Scope::whole(), false).map(drop);
        programs.without(read) != Some(Ok(()))
    })
}

/// Removes the rules of these addresses. Returns the number of changes.
///
/// # Errors
/// As [`admit`]. A family with missing programs is skipped, unless both families miss them.
pub fn withdraw(addrs: &[IpNet], runner: ProgramRunner<'_>) -> Result<usize, FirewallError> {
    let mut changes = 0;
    for (v6, addrs) in by_family(addrs) {
        let own: Vec<Rule> = addrs.iter().flat_map(|address| of_address(address.addr())).collect();
        match Programs::locate(v6, runner) {
            Ok(programs) => changes += take_away(&own, &programs)?,
            Err(error) if Programs::locate(!v6, runner).is_err() => return Err(error),
            // No program on this node could have made rules of this family.
            Err(_) => {}
        }
    }
    Ok(changes)
}

/// Returns the addresses that have a rule of the firewall plugin, in both families, whoever made it. Changes nothing.
///
/// # Errors
/// As [`withdraw`].
pub fn list(runner: ProgramRunner<'_>) -> Result<Vec<IpAddr>, FirewallError> {
    let mut addresses = Vec::new();
    for programs in families(runner)? {
        for saved in programs.look(FILTER)?.rules.iter().filter(|saved| saved.rule.chain == CHAIN) {
            let net = saved.rule.source.or(saved.rule.destination.map(|(_, net)| net));
            let address = net.filter(|net| net.prefix_len() == net.max_prefix_len()).map(|net| net.addr());
            let is_of = |address: &IpAddr| of_address(*address).contains(&saved.rule) && !addresses.contains(address);
            addresses.extend(address.filter(is_of));
        }
    }
    Ok(addresses)
}

/// Removes the rules of a bridge, whatever its policy, in both families. Returns the number of changes.
///
/// # Errors
/// As [`withdraw`].
pub fn open(bridge: &str, runner: ProgramRunner<'_>) -> Result<usize, FirewallError> {
    let own: Vec<Rule> = [IngressPolicy::SameBridge, IngressPolicy::Isolated]
        .into_iter()
        .flat_map(|ingress| of_bridge(bridge, ingress))
        .collect();
    let mut changes = 0;
    for programs in families(runner)? {
        changes += take_away(&own, &programs)?;
    }
    Ok(changes)
}

impl Tables {
    /// Reads the `filter` tables.
    pub(crate) fn filter(runner: ProgramRunner<'_>) -> Result<Self, FirewallError> {
        Self::look(FILTER, runner)
    }

    /// True if all rules that isolate this bridge are there, in their order.
    pub(crate) fn isolates(&self, bridge: &str, ingress: IngressPolicy, families: &[bool]) -> bool {
        let set = isolation(bridge, ingress);
        families.iter().all(|v6| self.of(*v6).is_some_and(|saved| changes(&set, saved).is_empty()))
    }

    /// True if the rules of this address are there, and the rule that leads to them.
    pub(crate) fn forwards(&self, address: IpAddr) -> bool {
        let [leading, _] = leading("");
        self.of(address.is_ipv6())
            .is_some_and(|saved| saved.has(&leading) && of_address(address).iter().all(|rule| saved.has(rule)))
    }
}

/// True if there may be rules of the firewall plugin in one of the families: accepted addresses, or isolated bridges. The look takes microseconds. If it is false,
/// [`withdraw`] would start programs for milliseconds and find nothing.
///
/// # Errors
/// The kernel refuses to show its nftables, or the deadline passes.
pub fn may_be_admitted(nft: &mut Nft) -> Result<bool, FirewallError> {
    if has_legacy(FILTER) {
        return Ok(true);
    }
    for family in [NetfilterProtoFamily::IPv4, NetfilterProtoFamily::IPv6] {
        for chain in [CHAIN, STAGES[0]] {
            if nft.chain(Table { family, name: FILTER }, chain)?.is_some() {
                return Ok(true);
            }
        }
    }
    Ok(false)
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
        let gone = owner().removals(&native, |rule| own.contains(rule));
        assert_eq!(
            gone,
            [
                "-D CNI-FORWARD -d 10.1.0.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
                "-D CNI-FORWARD -s 10.1.0.2/32 -j ACCEPT"
            ]
        );
        let lines: Vec<&str> = NATIVE.lines().filter(|line| line.starts_with("-A")).collect();
        let ours = admission.rules.iter().chain(&isolation.rules).map(|placed| format!("-A {}", placed.rule.line()));
        for line in ours {
            assert!(lines.contains(&line.as_str()), "{line}");
        }
    }

    /// Accepted addresses must not be asked before the isolation.
    #[test]
    fn the_isolation_stays_before_the_accepted_addresses() {
        let alone: String =
            NATIVE.lines().filter(|line| !line.contains("CNI-FORWARD")).map(|line| format!("{line}\n")).collect();
        let added = changes(&admission(&addresses(), "CNI-ADMIN"), &SavedTable::parse(&alone));
        let jump = to_isolation().line();
        assert_eq!(added[added.len() - 2..], [format!("-D {jump}"), format!("-I {jump}")]);
        let mut lines: Vec<&str> = NATIVE.lines().collect();
        let at = lines.iter().position(|line| line.contains("-j CNI-ISOLATION-STAGE-1")).unwrap();
        lines.swap(at, at + 1);
        let swapped = SavedTable::parse(&lines.join("\n"));
        assert_eq!(changes(&isolation("br0", IngressPolicy::Isolated), &swapped).len(), 2);
    }
}
