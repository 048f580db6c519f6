//! Forwards by nftables, in the native plugin's form. Postern and the native plugin find and remove each other's rules:
//!
//! ```text
//! table ip cni_hostport, table ip6 cni_hostport
//!     chain hostports       [conditions] [ip daddr <host IP>] tcp dport <port> dnat to <address>:<port> comment "<container>"
//!     chain hostports_all   jump hostip_hostports; jump hostports
//!     chain prerouting      fib daddr type local jump hostports_all
//!     chain output          fib daddr type local jump hostports_all
//!     chain masquerading    ct status dnat ip saddr <network> ip daddr <address> masquerade comment "<container>"
//! ```
//!
//! Two things differ from the native plugin. First, conditions are in the attachment's own rules. The native plugin
//! puts the conditions of the last network into the shared chains. Second, only forwarded packets are masqueraded, for
//! senders in the whole container network. Otherwise a neighbour's connection to the port would get answers from
//! another address.
//!
//! A comment names the container only. Attachments of one container share this comment. So the rules of an attachment
//! are found by their handles, or by their content.

use super::HostPorts;
use crate::key::COMMENT_MAX;
use crate::nft::prelude::*;
use postern_types::NatSources;
use std::net::Ipv4Addr;

pub(crate) const NAME: &str = "cni_hostport";
const COMMENT: &str = "CNI portmap plugin";
pub(super) const HOSTPORTS: &str = "hostports";
/// Native plugins before 1.9.1 put forwards with a host IP into this chain.
pub(super) const HOSTIP_HOSTPORTS: &str = "hostip_hostports";
pub(super) const HOSTPORTS_ALL: &str = "hostports_all";
pub(super) const MASQUERADING: &str = "masquerading";
pub(crate) const LOCALHOST: IpNet = IpNet::new_assert(IpAddr::V4(Ipv4Addr::LOCALHOST), 32);

static SHARED_V4: LazyLock<SharedTable> = LazyLock::new(|| shared(NetfilterProtoFamily::IPv4));
static SHARED_V6: LazyLock<SharedTable> = LazyLock::new(|| shared(NetfilterProtoFamily::IPv6));

/// Returns the objects of a family that all attachments share.
#[must_use]
pub fn shared_of(v6: bool) -> &'static SharedTable {
    if v6 { &SHARED_V6 } else { &SHARED_V4 }
}

fn shared(family: NetfilterProtoFamily) -> SharedTable {
    let regular = |name, has_entries| SharedChain { name, has_entries, ..SharedChain::default() };
    let base = |name, hook, priority| SharedChain {
        name,
        base: Some(BaseChain { kind: "nat", hook, priority }),
        wrong_kind: Some(
            "it is no nat chain, so nothing would be forwarded: delete the table, and the next ADD makes it again",
        ),
        ..SharedChain::default()
    };
    let jump = |chain| (NftPlace::Last, vec![rule::to_chain(Verdict::Jump, chain)]);
    let lead = || vec![(NftPlace::Last, lead())];
    let chains = vec![
        regular(HOSTPORTS, true),
        regular(HOSTIP_HOSTPORTS, true),
        SharedChain { rules: vec![jump(HOSTIP_HOSTPORTS), jump(HOSTPORTS)], ..regular(HOSTPORTS_ALL, false) },
        SharedChain { rules: lead(), ..base("prerouting", InetHookNumber::PreRouting, -100) },
        SharedChain { rules: lead(), ..base("output", InetHookNumber::LocalOut, -100) },
        SharedChain { has_entries: true, ..base(MASQUERADING, InetHookNumber::PostRouting, 100) },
    ];
    SharedTable {
        table: Table { family, name: NAME },
        comment: Some(COMMENT),
        chains,
        kind: "",
        is_named_for_plugins: true,
    }
}

/// Returns the rule that leads to the forwards. The rule matches only packets for this node (CVE-2025-67499).
pub(super) fn lead() -> Vec<Expression> {
    [rule::to_this_node().as_slice(), &[rule::to_chain(Verdict::Jump, HOSTPORTS_ALL)]].concat()
}

/// Returns the comment of a container's rules.
pub(super) fn comment(container_id: &str) -> Vec<u8> {
    let mut comment = container_id.as_bytes().to_vec();
    comment.truncate(COMMENT_MAX);
    comment
}

/// `ip saddr <source> ip daddr <address> masquerade`.
pub(super) fn masquerade_rule(source: Option<IpNet>, address: IpAddr) -> Vec<Expression> {
    let mut rule = source.map(|source| rule::address(Side::Source, true, source)).unwrap_or_default();
    rule.extend(rule::address(Side::Destination, true, address.into()));
    rule.push(Expression::Masquerade);
    rule
}

fn owner(container_id: &str, v6: bool) -> NftOwner {
    let mark = Mark { comment: comment(container_id), identifying: None };
    NftOwner { shared: shared_of(v6), mark, chains: Vec::new(), outer: None }
}

impl HostPorts {
    fn is_v6(&self) -> bool {
        self.address.addr().is_ipv6()
    }

    /// Returns the rules for nftables.
    pub(crate) fn rules(&self) -> NftRuleSet {
        let conditions: Vec<Expression> =
            self.conditions.iter().flat_map(super::PacketCondition::expressions).collect();
        let address = self.address.addr();
        let forwards = self.own_forwards();
        let mut entries: Vec<SharedRule> = forwards
            .iter()
            .map(|forward| {
                let mut rule = conditions.clone();
                if let Some(host) = forward.host_ip {
                    rule.extend(rule::address(Side::Destination, true, host.into()));
                }
                rule.extend(rule::destination_port(forward.protocol.number(), forward.host_port));
                rule.extend(rule::destination_nat(address, forward.container_port));
                SharedRule { chain: HOSTPORTS, rule }
            })
            .collect();
        let mut masquerade = |source: Option<IpNet>| {
            let rule = [rule::destination_was_changed().to_vec(), masquerade_rule(source, address)].concat();
            entries.push(SharedRule { chain: MASQUERADING, rule });
        };
        match self.sources {
            _ if forwards.is_empty() => {}
            NatSources::None => {}
            NatSources::All => masquerade(None),
            NatSources::Own => {
                masquerade(Some(self.address.trunc()));
                if !self.is_v6() {
                    masquerade(Some(LOCALHOST));
                }
            }
        }
        NftRuleSet { owner: owner(&self.key.container_id, self.is_v6()), entries, contents: Vec::new() }
    }

    /// Makes the rules, in one transaction, and returns their handles. `is_first` says that the attachment has no rules
    /// yet, so no search is made. Rules of the container's other attachments stay.
    ///
    /// # Errors
    /// The kernel refuses, or the deadline passes.
    pub fn nft_ensure(&self, nft: &mut Nft, is_first: bool) -> Result<Vec<u64>, FirewallError> {
        let look = if is_first { EntryScope::None } else { EntryScope::Beside };
        self.rules().ensure(nft, look, |_| false).map(Option::unwrap_or_default)
    }

    /// Returns the number of rules that the attachment should have in nftables.
    #[must_use]
    pub fn nft_count(&self) -> usize {
        self.rules().entries.len()
    }

    /// True if all rules exist. If `handles` has all their handles, no other rules are read.
    ///
    /// # Errors
    /// The kernel refuses to show the rules, or the deadline passes.
    pub fn nft_check(&self, nft: &mut Nft, handles: &[u64]) -> Result<bool, FirewallError> {
        self.rules().check(nft, handles)
    }

    /// Returns the kernel's number of the rules' table; `None` if the table is absent. If the number is the same before
    /// and after [`HostPorts::nft_ensure`], the rules are in the table with this number.
    ///
    /// # Errors
    /// The kernel refuses to show the table, or the deadline passes.
    pub fn nft_table(&self, nft: &mut Nft) -> Result<Option<u64>, FirewallError> {
        Ok(nft.table(shared_of(self.is_v6()).table)?.and_then(|table| table.handle))
    }

    /// Removes the attachment's rules. Other rules of the container stay. Returns the number of removed rules. If
    /// `table` is the number of the rules' table, no rule is read. If the handles don't lead to all rules, the rules
    /// are found by their content.
    ///
    /// # Errors
    /// The kernel refuses, or the deadline passes. Missing rules are no error.
    pub fn nft_remove(&self, nft: &mut Nft, handles: &[u64], table: Option<u64>) -> Result<usize, FirewallError> {
        let rules = self.rules();
        if let Some(table) = table
            && rules.remove_numbered(nft, handles, table)?
        {
            return Ok(handles.len());
        }
        let forwards: HashSet<(u8, u16, IpAddr, u16)> = self
            .own_forwards()
            .iter()
            .map(|forward| (forward.protocol.number(), forward.host_port, self.address.addr(), forward.container_port))
            .collect();
        let goes = |rule: &NftRule| {
            let expressions = rule.expressions();
            match rule::forward_of(&expressions) {
                Some(forward) => forwards.contains(&forward),
                None => rule::destination_of(&expressions) == Some(self.address.addr()),
            }
        };
        rules.remove(nft, handles, goes)
    }
}

/// A rule with a container's comment, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenForward {
    /// The comment: the first 128 bytes of the container's ID.
    pub container_id: String,
    /// Protocol number and port of the node that are forwarded; `None` for masquerading.
    pub port: Option<(u8, u16)>,
    /// The container's address.
    pub target: IpAddr,
}

impl SeenForward {
    fn read(rule: &NftRule) -> Option<Self> {
        let container_id = String::from_utf8_lossy(rule.comment.as_deref()?).into_owned();
        let expressions = rule.expressions();
        let (port, target) = match rule::forward_of(&expressions) {
            Some((protocol, port, target, _)) => (Some((protocol, port)), target),
            None => (None, rule::destination_of(&expressions)?),
        };
        Some(Self { container_id, port, target })
    }
}

/// True if rules with this comment may belong to another container: the comment may be a part of a longer ID.
#[must_use]
pub fn is_cut(container_id: &str) -> bool {
    container_id.len() >= COMMENT_MAX
}

/// True if rules of both containers have the same comment.
#[must_use]
pub fn have_one_comment(one: &str, other: &str) -> bool {
    comment(one) == comment(other)
}

/// Removes the rules of a container without a record, in both families. Rules that lead to a spared address stay. If
/// the comment may be cut ([`is_cut`]), only rules that lead to an address in `own` are removed.
///
/// # Errors
/// As [`HostPorts::nft_remove`].
pub fn remove_all(
    nft: &mut Nft,
    container_id: &str,
    own: &[IpAddr],
    spared: &[IpAddr],
) -> Result<usize, FirewallError> {
    let mut removed = 0;
    let is_own = |target: &IpAddr| !is_cut(container_id) || own.contains(target);
    for v6 in [false, true] {
        let goes = |rule: &NftRule| match SeenForward::read(rule) {
            Some(seen) => is_own(&seen.target) && !spared.contains(&seen.target),
            None => !is_cut(container_id),
        };
        removed += owner(container_id, v6).remove(nft, &[], &[], goes)?;
    }
    Ok(removed)
}

/// Returns the forwards and masquerading rules of all containers, whatever program made them. Changes nothing.
///
/// # Errors
/// The kernel refuses to show the rules, or the deadline passes.
pub fn list(nft: &mut Nft) -> Result<Vec<SeenForward>, FirewallError> {
    let mut seen = shared_of(false).list(nft, SeenForward::read)?;
    seen.extend(shared_of(true).list(nft, SeenForward::read)?);
    Ok(seen)
}

/// Removes these rules, whatever program made them. Returns the number of removed rules.
///
/// # Errors
/// As [`HostPorts::nft_remove`].
pub fn remove_seen(nft: &mut Nft, seen: &[SeenForward]) -> Result<usize, FirewallError> {
    let is_seen = |rule: &NftRule| SeenForward::read(rule).is_some_and(|rule| seen.contains(&rule));
    let mut removed = 0;
    for v6 in [false, true] {
        if seen.iter().any(|rule| rule.target.is_ipv6() == v6) {
            removed += shared_of(v6).retain(nft, is_seen, |_| Ok(()))?.len();
        }
    }
    Ok(removed)
}
