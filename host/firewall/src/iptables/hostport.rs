//! Forwards by iptables, in the native plugin's form. Postern and the native plugin find and remove each other's rules.
//! The rules are in table `nat` of the address's family:
//!
//! ```text
//! -A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT         and the same rule in OUTPUT
//! -I POSTROUTING -j CNI-HOSTPORT-MASQ
//! -A CNI-HOSTPORT-SETMARK -j MARK --set-xmark <bit>/<bit>
//! -A CNI-HOSTPORT-MASQ -m mark --mark <bit>/<bit> -j MASQUERADE
//! -A CNI-HOSTPORT-DNAT -p tcp <conditions> -m multiport --dports <ports> -j CNI-DN-<hash>
//! -A CNI-DN-<hash> -s <network> -p tcp -m tcp --dport <port> -j CNI-HOSTPORT-SETMARK
//! -A CNI-DN-<hash> -p tcp -m tcp --dport <port> -j DNAT --to-destination <address>:<port>
//! ```
//!
//! The chain `CNI-DN-…` belongs to a container and a network, like the chain of masquerading. Attachments of one
//! container to one network share the chain.

use super::prelude::*;
use crate::hostport::nft::LOCALHOST;
use crate::hostport::{About, CHAIN_PREFIX, HostPorts, MarkBy, PacketCondition, PortForward};
use crate::key::ChainKind::Forwards;
use postern_types::{IptablesVariant, NatSources, Transport};

pub(super) const DNAT: &str = "CNI-HOSTPORT-DNAT";
const SETMARK: &str = "CNI-HOSTPORT-SETMARK";
const MASQ: &str = "CNI-HOSTPORT-MASQ";
/// The chains that all containers share.
pub(super) const SHARED: [&str; 3] = [DNAT, SETMARK, MASQ];
/// The shared chains that mark packets, and that masquerade marked packets.
pub(super) const MARKING: [&str; 2] = [SETMARK, MASQ];
/// The largest number of ports in one rule (`XT_MULTI_PORTS`).
const MOST_PORTS: usize = 15;

/// True if table `nat` has this chain.
fn shows_chain(programs: &Programs<'_>, chain: &str) -> Result<bool, FirewallError> {
    Ok(programs.look(&Scope::whole(NAT))?.chains.iter().any(|name| name == chain))
}

impl HostPorts {
    /// Returns the rules in two forms. The first form has the native plugin's chain. The second form has the chain that
    /// is used if the first chain is taken.
    pub(super) fn sets(&self) -> Result<[IptablesRuleSet; 2], FirewallError> {
        let forwards = self.own_forwards();
        let own_mark = self.sources != NatSources::None && matches!(self.mark, MarkBy::Bit(_));
        let shared = if own_mark { SHARED.as_slice() } else { &[DNAT] };
        Ok(Forwards.owners(&self.key)?.map(|owner| {
            let (chain, comment) = owner.names();
            let mut rules = self.shared_rules();
            rules.extend(forwards.iter().flat_map(|forward| self.content(chain, forward)));
            // These rules come last. In each transaction the kernel checks a rule again if the rule leads to very many
            // rules.
            rules.extend(self.entries(chain, comment, &forwards));
            IptablesRuleSet { shared: shared.iter().map(|chain| (*chain).to_owned()).collect(), rules, owner }
        }))
    }

    /// Returns the rules that all attachments share.
    fn shared_rules(&self) -> Vec<(IptablesPlace, IptablesRule)> {
        let mut rules = Vec::new();
        if let (MarkBy::Bit(bit @ ..32), false) = (&self.mark, self.sources == NatSources::None) {
            let bit = 1 << bit;
            let mark = IptablesRule::new(SETMARK, Target::SetMark(bit, bit)).commented("CNI portfwd masquerade mark");
            let is_marked = vec![Match::Mark((true, (bit, bit)))];
            let masquerade = IptablesRule {
                matches: is_marked,
                ..IptablesRule::new(MASQ, Target::Masquerade { random_fully: false })
            };
            let lead =
                IptablesRule::new("POSTROUTING", Target::jump(MASQ)).commented("CNI portfwd requiring masquerade");
            rules.extend([
                (IptablesPlace::Last, mark),
                (IptablesPlace::Last, masquerade),
                (IptablesPlace::First, lead),
            ]);
        }
        // The rules come after other programs' rules, such as rules of Kubernetes' services (CVE-2019-9946). Only
        // packets for this node are forwarded.
        for chain in ["PREROUTING", "OUTPUT"] {
            let matches = vec![Match::LocalAddress { source: None, destination: Some(true) }];
            rules.push((IptablesPlace::Last, IptablesRule { matches, ..IptablesRule::new(chain, Target::jump(DNAT)) }));
        }
        rules
    }

    /// Returns the rules that lead to the attachment's chain.
    fn entries(&self, chain: &str, comment: &str, forwards: &[PortForward]) -> Vec<(IptablesPlace, IptablesRule)> {
        let mut rules = Vec::new();
        // The native plugin orders protocols by name.
        for protocol in [Transport::Sctp, Transport::Tcp, Transport::Udp] {
            let mut seen = HashSet::new();
            let of_protocol = forwards.iter().filter(|forward| forward.protocol == protocol);
            let ports: Vec<u16> =
                of_protocol.map(|forward| forward.host_port).filter(|port| seen.insert(*port)).collect();
            for ports in ports.chunks(MOST_PORTS) {
                let matches = vec![Match::DestinationPorts((true, ports.to_vec()))];
                let entry = IptablesRule {
                    protocol: Some((true, protocol)),
                    matches,
                    ..IptablesRule::new(DNAT, Target::jump(chain))
                };
                let mut entry = entry.commented(comment);
                self.conditions.iter().for_each(|condition| narrow(&mut entry, condition));
                rules.push((IptablesPlace::Last, entry));
            }
        }
        rules
    }

    /// Returns the rules of one forward in the attachment's chain.
    fn content(&self, chain: &str, forward: &PortForward) -> Vec<(IptablesPlace, IptablesRule)> {
        let protocol = forward.protocol;
        let to = |target, source: Option<IpNet>| IptablesRule {
            source: source.map(|source| (true, source)),
            destination: forward.host_ip.map(|host| (true, IpNet::from(host))),
            protocol: Some((true, protocol)),
            matches: vec![Match::Ports { protocol, source: None, destination: Some((true, forward.host_port)) }],
            ..IptablesRule::new(chain, target)
        };
        let mark = Target::jump(match &self.mark {
            MarkBy::Bit(_) => SETMARK,
            MarkBy::Chain(chain) => chain,
        });
        let address = self.address.addr();
        let mut rules = match self.sources {
            NatSources::None => Vec::new(),
            NatSources::All => vec![to(mark, None)],
            NatSources::Own if address.is_ipv6() => vec![to(mark, Some(self.address.trunc()))],
            NatSources::Own => vec![to(mark.clone(), Some(self.address.trunc())), to(mark, Some(LOCALHOST))],
        };
        rules.push(to(Target::Dnat(address, Some(forward.container_port)), None));
        rules.into_iter().map(|rule| (IptablesPlace::Last, rule)).collect()
    }

    /// Makes sure that the rules exist. `variant` is the variant of earlier rules. With `None`, the variant for new
    /// rules is used. Returns the handles of the new rules that lead to the attachment's chain, unless an iptables
    /// program made these rules. The record keeps the handles, to find the rules again.
    ///
    /// # Errors
    /// A comment can't have the names of network and container, an iptables program is missing or fails, or the
    /// deadline passes.
    pub fn iptables_ensure_in(
        &self,
        variant: Option<IptablesVariant>,
        runner: ProgramRunner<'_>,
    ) -> Result<Vec<u64>, FirewallError> {
        let programs = Programs::locate_in(variant, self.address.addr().is_ipv6(), runner)?;
        IptablesRuleSet::ensure(&self.sets()?, &programs)
            .map_err(|error| self.without_mark_chain(&programs).unwrap_or(error))
    }

    /// Returns the error if rules need another program's chain for marks, and this chain is missing.
    fn without_mark_chain(&self, programs: &Programs<'_>) -> Option<FirewallError> {
        let MarkBy::Chain(chain) = &self.mark else { return None };
        let is_absent = self.sources != NatSources::None && !shows_chain(programs, chain).ok()?;
        is_absent.then(|| {
            let way_out = format!(
                "table {NAT} of {} has no such chain: the chain's program does not run, or uses another backend, as \
                 kube-proxy in mode nftables does; without `externalSetMarkChain`, portmap makes its own chain",
                programs.name()
            );
            FirewallError::new("find", format!("chain {chain} (externalSetMarkChain)"), way_out)
        })
    }

    /// True if another program's chain for marks (`externalSetMarkChain`) exists in the table where new forwards of
    /// this family would be.
    ///
    /// # Errors
    /// The iptables programs are missing, or this process may not read the rules.
    pub fn iptables_has_mark_chain(chain: &str, v6: bool, runner: ProgramRunner<'_>) -> Result<bool, FirewallError> {
        shows_chain(&Programs::locate(v6, runner)?, chain)
    }

    /// True if all rules are there. With handles from [`HostPorts::iptables_ensure_in`], no other rules are read.
    ///
    /// # Errors
    /// The errors of [`HostPorts::iptables_ensure_in`].
    pub fn iptables_check(&self, known: RuleHandles<'_>, runner: ProgramRunner<'_>) -> Result<bool, FirewallError> {
        let (sets, v6) = (self.sets()?, self.address.addr().is_ipv6());
        in_any(known.recorded, v6, NAT, runner, |place| IptablesRuleSet::check(&sets, known.handles, place))
    }

    /// Removes the rules. The chain and the rules that lead to it go too, unless another attachment of the container to
    /// this network has forwards in it. `known` has handles from [`HostPorts::iptables_ensure_in`]. With these handles
    /// and their table's handle, no other rules are read.
    ///
    /// # Errors
    /// A program that a record's rules need is missing or fails, or the deadline passes. Missing rules are no error.
    pub fn iptables_remove(&self, known: RuleHandles<'_>, runner: ProgramRunner<'_>) -> Result<usize, FirewallError> {
        let Ok(sets) = self.sets() else { return Ok(0) };
        let numbered = known.tables.first().map(|table| (known.handles, *table));
        let owners: Vec<IptablesOwner> = sets.iter().map(|set| set.owner.clone()).collect();
        let scope = Scope { known: known.handles, ..Scope::of_owners(NAT, &owners) };
        let plan = |saved: &SavedTable| sets.iter().flat_map(|set| self.removals(set, saved)).collect();
        remove_from_each(known.recorded, self.address.addr().is_ipv6(), NAT, runner, |place| {
            Ok(match numbers::remove(&sets, numbered, place)? {
                Some(count) => count,
                None => place.change(&scope, plan)?.0,
            })
        })
    }

    /// Returns the changes that remove one form of the rules.
    fn removals(&self, set: &IptablesRuleSet, saved: &SavedTable) -> Vec<TableChange> {
        let own: HashSet<&IptablesRule> = set.rules.iter().map(|(_, rule)| rule).collect();
        let inside = |rule: &IptablesRule| set.owner.has_inside(rule);
        let others: Vec<&IptablesRule> =
            saved.rules.iter().map(|saved| &saved.rule).filter(|rule| inside(rule) && !own.contains(rule)).collect();
        if others.is_empty() {
            let mut changes = set.owner.removals(saved, |rule| is_owned(rule, &self.key));
            // If a foreign rule leads to the chain, the chain stays, but loses its rules.
            if !changes.iter().any(|change| matches!(change, TableChange::DeleteChain(_))) {
                let left = saved.rules.iter().filter(|saved| inside(&saved.rule));
                changes.extend(left.cloned().map(TableChange::Delete));
            }
            return changes;
        }
        // A rule that leads to the chain stays if it has ports of other forwards.
        let needed: HashSet<u16> = others.iter().flat_map(|rule| ports(rule)).copied().collect();
        let goes = |rule: &IptablesRule| match inside(rule) {
            true => own.contains(rule),
            false => {
                let is_needed = ports(rule).iter().any(|port| needed.contains(port));
                set.owner.leads_here(rule) && is_owned(rule, &self.key) && !is_needed
            }
        };
        saved.rules.iter().filter(|saved| goes(&saved.rule)).cloned().map(TableChange::Delete).collect()
    }
}

impl Tables {
    /// True if all these forwards are there.
    ///
    /// # Errors
    /// A comment can't have the names of network and container.
    pub fn has_forwards(&self, forwards: &HostPorts) -> Result<bool, FirewallError> {
        let (sets, mut tables) = (forwards.sets()?, self.of(forwards.address.addr().is_ipv6()));
        Ok(tables.any(|table| IptablesRuleSet::is_complete(&sets, table)))
    }
}

/// Adds a condition to a rule.
fn narrow(rule: &mut IptablesRule, condition: &PacketCondition) {
    let is = condition.is;
    let is_new = match &condition.about {
        About::Source(network) => once(&mut rule.source, (is, *network)),
        About::Destination(network) => once(&mut rule.destination, (is, *network)),
        About::Input(name) => once(&mut rule.input, (is, name.replace('*', "+"))),
    };
    // A second condition of the same kind is passed on unchanged: iptables reports the error.
    if is_new.is_none() {
        rule.matches.push(Match::Other(condition.to_string().split(' ').map(str::to_owned).collect()));
    }
}

/// Returns the destination ports that a rule names.
fn ports(rule: &IptablesRule) -> &[u16] {
    let found = rule.matches.iter().find_map(|part| match part {
        Match::Ports { destination: Some((_, port)), .. } => Some(std::slice::from_ref(port)),
        Match::DestinationPorts((_, ports)) => Some(ports.as_slice()),
        _ => None,
    });
    found.unwrap_or_default()
}

/// True if a rule that leads to a container's chain belongs to the container and network of `key`. The chain that has
/// the rule may have been renamed.
fn is_owned(rule: &IptablesRule, key: &AttachmentKey) -> bool {
    match rule.comment() {
        Some(comment) => key.iptables_comment(Forwards).is_ok_and(|own| own == comment),
        // Rules of old native plugins may have no comment.
        None => rule.chain == DNAT,
    }
}

/// Removes the forwards of all attachments of the container to the network, in both families, without a record. Returns
/// the number of changes.
///
/// # Errors
/// The errors of [`HostPorts::iptables_remove`].
pub fn remove_all(key: &AttachmentKey, runner: ProgramRunner<'_>) -> Result<usize, FirewallError> {
    let Ok(owners) = Forwards.owners(key) else { return Ok(0) };
    let mut changes = 0;
    for v6 in [false, true] {
        let remove = |place: &Programs<'_>| IptablesRuleSet::remove(&owners, &[], place, |rule| is_owned(rule, key));
        changes += remove_from_each(Recorded::No, v6, NAT, runner, remove)?;
    }
    Ok(changes)
}

/// A chain of a container's forwards, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenForwardChain {
    /// The chain's name.
    pub chain: String,
    /// True for IPv6.
    pub v6: bool,
    /// The chain's owner, a key without an interface, if a rule that leads to the chain names the owner.
    pub key: Option<AttachmentKey>,
    /// The addresses that the chain leads to, each once.
    pub targets: Vec<IpAddr>,
}

impl SeenForwardChain {
    fn all(table: &SavedTable, v6: bool) -> Vec<Self> {
        let of_chain = |chain: &String| {
            let mut targets: Vec<IpAddr> = Vec::new();
            for saved in table.rules.iter().filter(|saved| saved.rule.chain == *chain) {
                targets.extend(saved.rule.dnat_address().filter(|target| !targets.contains(target)));
            }
            let mut leads = table.rules.iter().filter(|saved| saved.rule.target_chain() == Some(chain));
            let key = leads.find_map(|saved| AttachmentKey::of_iptables(Forwards, chain, saved.rule.comment()?));
            Self { chain: chain.clone(), v6, key, targets }
        };
        table.chains.iter().filter(|chain| chain.starts_with(CHAIN_PREFIX)).map(of_chain).collect()
    }
}

/// Returns the chains of all containers' forwards, in both families, whatever program made them. Changes nothing.
///
/// # Errors
/// The errors of [`remove_all`].
pub fn list(runner: ProgramRunner<'_>) -> Result<Vec<SeenForwardChain>, FirewallError> {
    Ok(Tables::look(NAT, runner)?.0.iter().flat_map(|seen| SeenForwardChain::all(&seen.saved, seen.v6)).collect())
}

/// Removes each of these chains that has not changed since it was read, and the plugins' rules that lead to this chain.
/// Returns the number of changes.
///
/// # Errors
/// The errors of [`remove_all`].
pub fn remove_seen(seen: &[SeenForwardChain], runner: ProgramRunner<'_>) -> Result<usize, FirewallError> {
    let mut changes = 0;
    for programs in Programs::of_all(NAT, runner) {
        let plan = |table: &SavedTable| {
            let now = SeenForwardChain::all(table, programs.v6);
            let owner =
                |seen: &SeenForwardChain| IptablesOwner { chain: Some(seen.chain.clone()), ..IptablesOwner::default() };
            let same = now.iter().filter(|now| seen.contains(now));
            same.flat_map(|seen| owner(seen).removals(table, |rule| rule.chain == DNAT)).collect()
        };
        changes += programs.change(&Scope::whole(NAT), plan)?.0;
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostport::Syntax;

    fn ports(container: &str) -> HostPorts {
        let forward = |protocol, host_ip: Option<&str>, host_port, container_port| PortForward {
            protocol,
            host_ip: host_ip.map(|ip| ip.parse().unwrap()),
            host_port,
            container_port,
        };
        HostPorts {
            key: AttachmentKey { network: "mynet".into(), container_id: container.into(), ifname: "eth0".into() },
            address: "10.1.0.2/16".parse().unwrap(),
            forwards: vec![
                forward(Transport::Tcp, None, 8080, 80),
                forward(Transport::Udp, Some("127.0.0.1"), 8081, 81),
                forward(Transport::Sctp, Some("::1"), 8082, 82),
            ],
            sources: NatSources::Own,
            mark: MarkBy::Bit(13),
            conditions: Vec::new(),
        }
    }

    fn lines(ports: &HostPorts) -> Vec<String> {
        ports.sets().unwrap()[0].rules.iter().map(|(_, rule)| rule.line()).collect()
    }

    /// The lines that `iptables-save` 1.8.9 prints after the native plugin 1.9.1 has made the same forwards.
    #[test]
    fn rules_are_as_native_ones_are_printed() {
        let chain = "CNI-DN-a631aa8e1549a3b129110";
        let comment = r#"-m comment --comment "dnat name: \"mynet\" id: \"cid1\"""#;
        let saved = [
            r#"CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000"#.to_owned(),
            "CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE".to_owned(),
            r#"POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ"#.to_owned(),
            "PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT".to_owned(),
            "OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT".to_owned(),
            format!("{chain} -s 10.1.0.0/16 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK"),
            format!("{chain} -s 127.0.0.1/32 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK"),
            format!("{chain} -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.1.0.2:80"),
            format!("{chain} -s 10.1.0.0/16 -d 127.0.0.1/32 -p udp -m udp --dport 8081 -j CNI-HOSTPORT-SETMARK"),
            format!("{chain} -s 127.0.0.1/32 -d 127.0.0.1/32 -p udp -m udp --dport 8081 -j CNI-HOSTPORT-SETMARK"),
            format!("{chain} -d 127.0.0.1/32 -p udp -m udp --dport 8081 -j DNAT --to-destination 10.1.0.2:81"),
            format!("CNI-HOSTPORT-DNAT -p tcp {comment} -m multiport --dports 8080 -j {chain}"),
            format!("CNI-HOSTPORT-DNAT -p udp {comment} -m multiport --dports 8081 -j {chain}"),
        ];
        assert_eq!(lines(&ports("cid1")), saved);
        let wanted: Vec<IptablesRule> = saved.iter().map(|line| IptablesRule::parse(line)).collect();
        let made: Vec<IptablesRule> =
            ports("cid1").sets().unwrap()[0].rules.iter().map(|(_, rule)| rule.clone()).collect();
        assert_eq!(made, wanted);
    }

    #[test]
    fn conditions_and_marks() {
        let words = ["!", "-d", "192.0.2.0/24", "-i", "eth9", "!", "-s", "198.51.100.0/24"].map(str::to_owned);
        let conditions: Vec<PacketCondition> = Syntax::Iptables.read(&words, false).unwrap();
        let ports = HostPorts { sources: NatSources::All, mark: MarkBy::Bit(5), conditions, ..ports("cid1") };
        let lines = lines(&ports);
        assert!(lines[0].ends_with("--set-xmark 0x20/0x20"), "{lines:?}");
        let saved = r#"CNI-HOSTPORT-DNAT ! -s 198.51.100.0/24 ! -d 192.0.2.0/24 -i eth9 -p tcp -m comment --comment "dnat name: \"mynet\" id: \"cid1\"" -m multiport --dports 8080 -j CNI-DN-a631aa8e1549a3b129110"#;
        assert!(lines.iter().any(|line| line == saved), "{lines:?}");
        // iptables accepts only one source in a rule, and reports an error for the second source.
        let two = ["-s", "192.0.2.0/24", "-s", "198.51.100.0/24"].map(str::to_owned);
        let twice = HostPorts { conditions: Syntax::Iptables.read(&two, false).unwrap(), ..ports.clone() };
        let line =
            twice.sets().unwrap()[0].rules.iter().map(|(_, rule)| rule.line()).find(|line| line.contains("-s 1"));
        assert!(line.unwrap().contains("--dports 8080 -s 198.51.100.0/24 -j"), "both are passed on");
        let external = HostPorts { mark: MarkBy::Chain("KUBE-MARK-MASQ".to_owned()), ..ports.clone() };
        assert!(
            external.sets().unwrap()[0].rules.iter().any(|(_, rule)| rule.target_chain() == Some("KUBE-MARK-MASQ"))
        );
        assert_eq!(external.sets().unwrap()[0].shared, [DNAT]);
        let plain = HostPorts { sources: NatSources::None, ..ports };
        assert!(!plain.sets().unwrap()[0].rules.iter().any(|(_, rule)| rule.target_chain() == Some(SETMARK)));
    }

    #[test]
    fn at_most_fifteen_ports_in_a_rule() {
        let forwards = (1..=31).map(|port| PortForward {
            protocol: Transport::Tcp,
            host_ip: None,
            host_port: port,
            container_port: port,
        });
        let ports = HostPorts { forwards: forwards.collect(), ..ports("cid1") };
        let entries = lines(&ports).into_iter().filter(|line| line.contains("multiport")).count();
        assert_eq!(entries, 3);
    }

    #[test]
    fn owners_are_read_from_rules() {
        let rules = ports("cid1").sets().unwrap()[0].rules.clone();
        let keys: Vec<AttachmentKey> = rules.iter().filter_map(|(_, rule)| Forwards.key_of(rule)).collect();
        // The SCTP forward is for IPv6, so IPv4 has no rule for it.
        assert_eq!(keys.len(), 2);
        assert_eq!((keys[0].network.as_str(), keys[0].container_id.as_str()), ("mynet", "cid1"));
    }
}
