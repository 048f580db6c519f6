//! Masquerading of an attachment's addresses (`ipMasq`) with nftables.
//!
//! Table, chains, rules and comments are the native plugins'. So Postern and a native plugin find and remove each
//! other's rules:
//!
//! ```text
//! table inet cni_plugins_masquerade
//!     chain masq_checks      ip saddr <address> ip daddr != <its network> masquerade comment "<attachment>"
//!     chain postrouting      multicast returns, other packets go to masq_checks
//! ```
//!
//! All attachments of the node share the table and its chains. The table and the chains stay when the last attachment
//! goes (`postern gc --node` removes them).

use crate::key::{INSTANCE, instance_hash, named_by, network_hash};
use crate::nft::prelude::*;
use std::cell::OnceCell;
use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) const TABLE: Table = Table { family: NetfilterProtoFamily::Inet, name: "cni_plugins_masquerade" };
pub(crate) const CHECKS: &str = "masq_checks";
const POSTROUTING: &str = "postrouting";

// The native plugins' text: it identifies the table to people and to scripts.
const TABLE_COMMENT: &str = "Masquerading for plugins from github.com/containernetworking/plugins";
const CHECKS_COMMENT: &str = "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet";

/// Multicast networks are never masqueraded (RFC 5771, RFC 4291 section 2.7).
pub(crate) const MULTICAST_V4: IpNet = IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 4);
pub(crate) const MULTICAST_V6: IpNet = IpNet::new_assert(IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8);

/// The objects that all attachments share. They stay when the last attachment goes (`postern gc --node` removes them).
pub static SHARED: LazyLock<SharedTable> = LazyLock::new(|| {
    let [multicast_v4, multicast_v6] = [MULTICAST_V4, MULTICAST_V6].map(|network| {
        let mut rule = rule::family(network).to_vec();
        rule.extend(rule::address(Side::Destination, true, network));
        rule.push(rule::verdict(Verdict::Return));
        (NftPlace::First, rule)
    });
    let comment = Some(CHECKS_COMMENT);
    let checks = SharedChain { name: CHECKS, comment, has_entries: true, ..SharedChain::default() };
    let postrouting = SharedChain {
        name: POSTROUTING,
        base: Some(BaseChain { kind: "nat", hook: InetHookNumber::PostRouting, priority: 100 }),
        wrong_kind: Some(
            "it is no nat chain, so nothing would be masqueraded: delete the table, and the next ADD makes it again",
        ),
        // Multicast is not masqueraded. All other packets go to the attachments' rules.
        rules: vec![multicast_v4, multicast_v6, (NftPlace::Last, vec![rule::to_chain(Verdict::Goto, CHECKS)])],
        ..SharedChain::default()
    };
    SharedTable {
        table: TABLE,
        comment: Some(TABLE_COMMENT),
        chains: vec![checks, postrouting],
        kind: "",
        is_named_for_plugins: true,
    }
});

fn owner(key: &AttachmentKey) -> NftOwner {
    let mark = Mark { comment: key.nft_comment(), identifying: Some(INSTANCE) };
    NftOwner { shared: &SHARED, mark, chains: Vec::new(), outer: None }
}

/// Returns the rules of these addresses in their order, each once.
pub(crate) fn rules(key: &AttachmentKey, addrs: &[IpNet]) -> NftRuleSet {
    let mut seen = HashSet::new();
    let each_once = addrs.iter().filter(|address| seen.insert(**address));
    let entries = each_once.map(|address| SharedRule { chain: CHECKS, rule: masquerade_rule(*address) }).collect();
    NftRuleSet { owner: owner(key), entries, contents: Vec::new() }
}

/// Makes sure that traffic from each address to outside its network is masqueraded, and that the attachment has no
/// other masquerading rules. `addrs` are host addresses with their network's prefix length. `is_first` says that the
/// attachment has no rules yet, so no search is made.
///
/// Nothing is changed if everything is there. Otherwise one transaction makes all changes, including the shared
/// objects. Returns the handles of the new rules. The record keeps the handles, to find the rules again.
///
/// # Errors
/// The kernel refuses, the deadline passes, or a chain with the needed name has another kind.
pub fn nft_ensure(
    nft: &mut Nft,
    key: &AttachmentKey,
    addrs: &[IpNet],
    is_first: bool,
) -> Result<Vec<u64>, FirewallError> {
    let look = if is_first { EntryScope::None } else { EntryScope::All };
    rules(key, addrs).ensure(nft, look, |_| false).map(Option::unwrap_or_default)
}

/// True if everything that [`nft_ensure`] makes is there: the rules of each address, and the shared rules that lead to
/// them. If the handles from [`nft_ensure`] still belong to the attachment's rules, no other rules are read.
///
/// # Errors
/// The kernel refuses to show the rules, or the deadline passes.
pub fn nft_check_known(
    nft: &mut Nft,
    key: &AttachmentKey,
    addrs: &[IpNet],
    handles: &[u64],
) -> Result<bool, FirewallError> {
    rules(key, addrs).check(nft, handles)
}

/// Removes the attachment's masquerading rules, for all addresses. Returns the number of removed rules. `handles` are
/// the handles of all rules, from the first call of [`nft_ensure`]. If the handles still belong to the attachment's
/// rules, no other rules are read. Each comment is read before its rule is deleted.
///
/// # Errors
/// The kernel refuses, or the deadline passes. Missing rules are no error.
pub fn nft_remove_known(nft: &mut Nft, key: &AttachmentKey, handles: &[u64]) -> Result<usize, FirewallError> {
    owner(key).remove(nft, handles, &[], |_| true)
}

/// Removes the masquerading rules of all attachments of `network` except valid and busy attachments. Returns the
/// comments of the removed rules, each once. A comment names network, interface and container.
///
/// `valid` and the result of `busy` are pairs of container ID and interface name. `busy` is called only if there is
/// something to remove, and after the rules were read. So `busy` knows an attachment that is just being made.
///
/// # Errors
/// The kernel refuses, the deadline passes, or `busy` fails.
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
    // A long comment is cut, and only its hashes identify the attachment. These hashes are computed only if needed.
    let valid_instances = OnceCell::new();
    let is_valid = |rule: &NftRule| {
        rule.comment.as_deref().and_then(named_by).is_some_and(|names| named.contains(&names))
            || instance_of(rule)
                .is_some_and(|instance| valid_instances.get_or_init(|| instances(valid)).contains(instance))
    };
    let is_stale = |rule: &NftRule| rule.commented(ours.as_bytes()) && !is_valid(rule);
    let removed = SHARED.retain(nft, is_stale, |stale| {
        let busy = instances(&busy()?);
        stale.retain(|found| instance_of(&found.rule).is_none_or(|instance| !busy.contains(instance)));
        Ok(())
    })?;
    let mut seen = HashSet::new();
    let comments = removed.iter().map(|rule| String::from_utf8_lossy(rule.comment.as_deref().unwrap_or_default()));
    Ok(comments.map(String::from).filter(|comment| seen.insert(comment.clone())).collect())
}

/// Returns the beginning of a rule's comment: the hashes of network and attachment.
fn instance_of(rule: &NftRule) -> Option<&str> {
    std::str::from_utf8(rule.comment.as_deref()?.get(..INSTANCE)?).ok()
}

/// A masquerading rule, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenMasquerade {
    /// The address whose traffic is masqueraded.
    pub source: IpAddr,
    /// The owner of the rule. The container ID may be cut.
    pub key: AttachmentKey,
    /// True if the container ID is complete, false if the comment was cut.
    pub whole: bool,
    comment: Vec<u8>,
}

impl SeenMasquerade {
    fn read(rule: &NftRule) -> Option<Self> {
        let comment = rule.comment.clone()?;
        let (key, whole) = AttachmentKey::of_nft_comment(&comment)?;
        let expressions = rule.expressions();
        let (source, rest) = rule::source_of(&expressions)?;
        let (Expression::Masquerade, elsewhere) = rest.split_last()? else { return None };
        rule::is_elsewhere(elsewhere, source).then_some(Self { source, key, whole, comment })
    }

    /// Returns the rule's comment.
    #[must_use]
    pub fn mark(&self) -> String {
        String::from_utf8_lossy(&self.comment).into_owned()
    }
}

/// Returns the masquerading rules of all attachments, whatever program made them. Rules with another form than
/// [`nft_ensure`]'s, or with a comment that doesn't name an attachment, are left out. Changes nothing.
///
/// # Errors
/// The kernel refuses to show the rules, or the deadline passes.
pub fn nft_list(nft: &mut Nft) -> Result<Vec<SeenMasquerade>, FirewallError> {
    SHARED.list(nft, SeenMasquerade::read)
}

/// Removes these rules. Returns the number of removed rules.
///
/// # Errors
/// The kernel refuses, or the deadline passes.
pub fn nft_remove_seen(nft: &mut Nft, seen: &[SeenMasquerade]) -> Result<usize, FirewallError> {
    let is_seen = |rule: &NftRule| SeenMasquerade::read(rule).is_some_and(|rule| seen.contains(&rule));
    SHARED.retain(nft, is_seen, |_| Ok(())).map(|removed| removed.len())
}

/// `ip saddr <address> ip daddr != <network> masquerade`.
fn masquerade_rule(address: IpNet) -> Vec<Expression> {
    let mut rule = rule::family(address).to_vec();
    rule.extend(rule::address(Side::Source, true, IpNet::from(address.addr())));
    rule.extend(rule::address(Side::Destination, false, address));
    rule.push(Expression::Masquerade);
    rule
}
