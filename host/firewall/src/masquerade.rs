//! Masquerading of an attachment's addresses (`ipMasq`) with nftables.
//!
//! Table, chains, rules and comments are the native plugins' own, so that either side finds and removes what the other
//! made:
//!
//! ```text
//! table inet cni_plugins_masquerade
//!     chain masq_checks      ip saddr <address> ip daddr != <its network> masquerade comment "<attachment>"
//!     chain postrouting      multicast returns, the rest goes to masq_checks
//! ```
//!
//! The table and its chains are shared by all attachments of the node and stay when the last one goes
//! ([`crate::node`]).

use std::cell::OnceCell;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use ipnet::IpNet;
use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_packet_netfilter::nftables::{InetHookNumber, Verdict};

use crate::key::{INSTANCE, instance_hash, named_by, network_hash};
use crate::nft::batch::{BaseChain, Table};
use crate::nft::ground::{Ground, Place, Shared};
use crate::nft::rule::{self, Expression, Rule, Side};
use crate::nft::set::{Entry, Look, Mark, Owner, RuleSet};
use crate::{AttachmentKey, FirewallError, Nft};

pub(crate) const TABLE: Table = Table { family: NetfilterProtoFamily::Inet, name: "cni_plugins_masquerade" };
pub(crate) const CHECKS: &str = "masq_checks";
const POSTROUTING: &str = "postrouting";

// The native plugins' words: they identify the table to people and to scripts.
const TABLE_COMMENT: &str = "Masquerading for plugins from github.com/containernetworking/plugins";
const CHECKS_COMMENT: &str = "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet";

/// RFC 5771, RFC 4291 section 2.7: never masqueraded.
pub(crate) const MULTICAST_V4: IpNet = IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 4);
pub(crate) const MULTICAST_V6: IpNet = IpNet::new_assert(IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8);

/// What all attachments share: they stay when the last one goes ([`crate::node`]).
pub(crate) static GROUND: LazyLock<Ground> = LazyLock::new(|| {
    let [multicast_v4, multicast_v6] = [MULTICAST_V4, MULTICAST_V6].map(|network| {
        let mut rule = rule::family(network).to_vec();
        rule.extend(rule::address(Side::Destination, true, network));
        rule.push(rule::verdict(Verdict::Return));
        (Place::First, rule)
    });
    let checks = Shared {
        name: CHECKS,
        base: None,
        wrong_kind: None,
        comment: Some(CHECKS_COMMENT),
        rules: Vec::new(),
        has_entries: true,
    };
    let postrouting = Shared {
        name: POSTROUTING,
        base: Some(BaseChain { kind: "nat", hook: InetHookNumber::PostRouting, priority: 100 }),
        wrong_kind: Some(
            "it is no nat chain, and nothing would be masqueraded: delete the table, it will be made anew",
        ),
        comment: None,
        // Multicast is not masqueraded, everything else goes to the attachments' rules.
        rules: vec![multicast_v4, multicast_v6, (Place::Last, vec![rule::to_chain(Verdict::Goto, CHECKS)])],
        has_entries: false,
    };
    Ground {
        table: TABLE,
        comment: Some(TABLE_COMMENT),
        shared: vec![checks, postrouting],
        kind: "",
        is_named_for_plugins: true,
    }
});

fn owner(key: &AttachmentKey) -> Owner<'static> {
    let mark = Mark { comment: key.nft_comment(), telling: Some(INSTANCE) };
    Owner { ground: &GROUND, mark, chains: Vec::new(), outer: None }
}

/// The rules of these addresses in their order, each once.
fn rules(key: &AttachmentKey, addrs: &[IpNet]) -> RuleSet<'static> {
    let mut seen = HashSet::new();
    let each_once = addrs.iter().filter(|address| seen.insert(**address));
    let entries = each_once.map(|address| Entry { chain: CHECKS, rule: masquerade_rule(*address) }).collect();
    RuleSet { owner: owner(key), entries, contents: Vec::new() }
}

/// Makes sure that traffic from each address to outside its network is masqueraded, and that the attachment has no
/// other masquerading rules. `addrs` are host addresses with their network's prefix length.
///
/// Nothing is changed if all is there; otherwise it is one transaction, the base objects included.
///
/// # Errors
/// The kernel refuses, the deadline passes, or a chain of our name is not of our kind.
pub fn nft_ensure(nft: &mut Nft, key: &AttachmentKey, addrs: &[IpNet]) -> Result<(), FirewallError> {
    rules(key, addrs).ensure(nft, Look::All, |_| false).map(drop)
}

/// As [`nft_ensure`] for an attachment that has no rules yet, so that nobody has to look for them among those of all others.
/// Returns the handles of the new rules: the record keeps them, and the rules are found by them again.
///
/// # Errors
/// As [`nft_ensure`].
pub fn nft_add(nft: &mut Nft, key: &AttachmentKey, addrs: &[IpNet]) -> Result<Vec<u64>, FirewallError> {
    rules(key, addrs).ensure(nft, Look::None, |_| false).map(Option::unwrap_or_default)
}

/// Whether all that [`nft_ensure`] makes is there: the rules of each address, and the way that leads to them.
///
/// # Errors
/// The kernel refuses to show it, or the deadline passes.
pub fn nft_check(nft: &mut Nft, key: &AttachmentKey, addrs: &[IpNet]) -> Result<bool, FirewallError> {
    nft_check_known(nft, key, addrs, &[])
}

/// The same of rules with handles from [`nft_add`]: where they are the attachment's still, no others are looked at.
///
/// # Errors
/// The kernel refuses to show it, or the deadline passes.
pub fn nft_check_known(
    nft: &mut Nft,
    key: &AttachmentKey,
    addrs: &[IpNet],
    handles: &[u64],
) -> Result<bool, FirewallError> {
    rules(key, addrs).check(nft, handles)
}

/// As [`nft_check`], of the rules that each chain has by `rules`.
pub(crate) fn is_complete<R: AsRef<[Rule]>>(
    key: &AttachmentKey,
    addrs: &[IpNet],
    of_chain: impl FnMut(&str) -> Result<R, FirewallError>,
) -> Result<bool, FirewallError> {
    rules(key, addrs).is_complete(of_chain)
}

/// Removes the attachment's masquerading rules, whichever addresses they are for, and returns how many there were.
///
/// # Errors
/// The kernel refuses, or the deadline passes. That nothing is there is no error.
pub fn nft_remove(nft: &mut Nft, key: &AttachmentKey) -> Result<usize, FirewallError> {
    nft_remove_known(nft, key, &[])
}

/// The same with handles from [`nft_add`]: where they are the attachment's still, they are its rules, and no others are looked
/// at. Each comment is read before its rule is deleted.
///
/// # Errors
/// As [`nft_remove`].
pub fn nft_remove_known(nft: &mut Nft, key: &AttachmentKey, handles: &[u64]) -> Result<usize, FirewallError> {
    owner(key).remove(nft, handles, |_| true).map(|removed| removed.entries)
}

/// Removes the masquerading rules of all attachments of `network` except the valid and the busy ones, and returns the comments
/// of the removed rules, each once: they name network, interface and container.
///
/// Both are (container ID, interface name). Who is busy is asked only if there is something to remove, and after the rules were
/// read: an attachment that is being made can be known by then.
///
/// # Errors
/// The kernel refuses, the deadline passes, or who is busy can't be told.
pub fn nft_retain(
    nft: &mut Nft,
    network: &str,
    valid: &[(String, String)],
    busy: impl Fn() -> Result<Vec<(String, String)>, FirewallError>,
) -> Result<Vec<String>, FirewallError> {
    let ours = format!("{}-", network_hash(network));
    let named: HashSet<(&str, &str)> = valid.iter().map(|(id, ifname)| (id.as_str(), ifname.as_str())).collect();
    let instances = |all: &[(String, String)]| -> HashSet<String> {
        all.iter().map(|(container_id, ifname)| format!("{ours}{}", instance_hash(ifname, container_id))).collect()
    };
    // Made only if a comment alone doesn't tell: long ones are cut.
    let valid_instances = OnceCell::new();
    let is_valid = |rule: &Rule| {
        rule.comment.as_deref().and_then(named_by).is_some_and(|names| named.contains(&names))
            || instance_of(rule)
                .is_some_and(|instance| valid_instances.get_or_init(|| instances(valid)).contains(instance))
    };
    let is_stale = |rule: &Rule| rule.commented(ours.as_bytes()) && !is_valid(rule);
    let removed = GROUND.retain(nft, is_stale, |stale| {
        let busy = instances(&busy()?);
        stale.retain(|found| instance_of(&found.rule).is_none_or(|instance| !busy.contains(instance)));
        Ok(())
    })?;
    let mut seen = HashSet::new();
    let comments = removed.iter().map(|rule| String::from_utf8_lossy(rule.comment.as_deref().unwrap_or_default()));
    Ok(comments.map(String::from).filter(|comment| seen.insert(comment.clone())).collect())
}

/// What a rule's comment begins with: the hashes of network and attachment.
fn instance_of(rule: &Rule) -> Option<&str> {
    std::str::from_utf8(rule.comment.as_deref()?.get(..INSTANCE)?).ok()
}

/// A masquerading rule as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whose traffic is masqueraded.
    pub source: IpAddr,
    /// Whose rule it is; of the container ID perhaps only the beginning.
    pub key: AttachmentKey,
    /// Whether that is all of the container ID: longer comments are cut.
    pub whole: bool,
    comment: Vec<u8>,
}

impl Seen {
    fn read(rule: &Rule) -> Option<Self> {
        let comment = rule.comment.clone()?;
        let (key, whole) = AttachmentKey::of_nft_comment(&comment)?;
        let expressions = rule.expressions();
        let (source, rest) = rule::source_of(&expressions)?;
        let (Expression::Masquerade, elsewhere) = rest.split_last()? else { return None };
        rule::is_elsewhere(elsewhere, source).then_some(Self { source, key, whole, comment })
    }

    /// Its comment.
    #[must_use]
    pub fn mark(&self) -> String {
        String::from_utf8_lossy(&self.comment).into_owned()
    }
}

/// The masquerading rules of all attachments, whoever made them. Rules that are not in the form of [`nft_ensure`], and
/// those whose comment doesn't tell whose they are, are left out. Changes nothing.
///
/// # Errors
/// The kernel refuses to show them, or the deadline passes.
pub fn nft_list(nft: &mut Nft) -> Result<Vec<Seen>, FirewallError> {
    GROUND.list(nft, Seen::read)
}

/// Removes these rules, and returns how many of them were there.
///
/// # Errors
/// The kernel refuses, or the deadline passes.
pub fn nft_remove_seen(nft: &mut Nft, seen: &[Seen]) -> Result<usize, FirewallError> {
    let is_seen = |rule: &Rule| Seen::read(rule).is_some_and(|rule| seen.contains(&rule));
    GROUND.retain(nft, is_seen, |_| Ok(())).map(|removed| removed.len())
}

/// `ip saddr <address> ip daddr != <network> masquerade`.
fn masquerade_rule(address: IpNet) -> Vec<Expression> {
    let mut rule = rule::family(address).to_vec();
    rule.extend(rule::address(Side::Source, true, IpNet::from(address.addr())));
    rule.extend(rule::address(Side::Destination, false, address));
    rule.push(Expression::Masquerade);
    rule
}
