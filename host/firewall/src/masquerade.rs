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

use ipnet::IpNet;
use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_packet_netfilter::nftables::{InetHookNumber, Verdict};

use crate::batch::{BaseChain, Batch, Table};
use crate::key::{INSTANCE, instance_hash, named_by, network_hash};
use crate::rule::{self, Expression, Rule, Side};
use crate::{FirewallError, MasqueradeKey, Nft};

pub(crate) const TABLE: Table = Table { family: NetfilterProtoFamily::Inet, name: "cni_plugins_masquerade" };
pub(crate) const CHECKS: &str = "masq_checks";
pub(crate) const POSTROUTING: &str = "postrouting";

// The native plugins' words: they identify the table to people and to scripts.
const TABLE_COMMENT: &str = "Masquerading for plugins from github.com/containernetworking/plugins";
const CHECKS_COMMENT: &str = "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet";

/// RFC 5771, RFC 4291 section 2.7: never masqueraded.
pub(crate) const MULTICAST_V4: IpNet = IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 4);
pub(crate) const MULTICAST_V6: IpNet = IpNet::new_assert(IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8);

/// Deletions per transaction of a collection: what fits a netlink datagram several times over.
const CHUNK: usize = 500;

/// Makes sure that traffic from each address to outside its network is masqueraded, and that the attachment has no
/// other masquerading rules. `addrs` are host addresses with their network's prefix length.
///
/// Nothing is changed if all is there; otherwise it is one transaction, the base objects included.
///
/// # Errors
/// The kernel refuses, the deadline passes, or a chain of our name is not of our kind.
pub fn nft_ensure(nft: &mut Nft, key: &MasqueradeKey, addrs: &[IpNet]) -> Result<(), FirewallError> {
    let comment = key.nft_comment();
    let instance = key.instance();
    nft.change(|nft, batch| {
        ensure_base(nft, batch)?;
        let mut wanted = wanted(addrs);
        for rule in nft.rules(TABLE, CHECKS)? {
            if !rule.commented(instance.as_bytes()) {
                continue;
            }
            let position = wanted.iter().position(|wanted| rule.is(wanted));
            match position.filter(|_| rule.comment.as_ref() == Some(&comment)) {
                Some(position) => drop(wanted.remove(position)),
                None => batch.delete_rule(TABLE, CHECKS, rule.handle),
            }
        }
        for rule in wanted {
            batch.append_rule(TABLE, CHECKS, &rule, Some(&comment));
        }
        Ok(())
    })
}

/// As [`nft_ensure`] for an attachment that has no rules yet, so that nobody has to look for them among those of all others.
/// Returns the handles of the new rules: the record keeps them, and the rules are found by them again.
///
/// # Errors
/// As [`nft_ensure`].
pub fn nft_add(nft: &mut Nft, key: &MasqueradeKey, addrs: &[IpNet]) -> Result<Vec<u64>, FirewallError> {
    let comment = key.nft_comment();
    let ((), made) = nft.change_and_see(|nft, batch| {
        ensure_base(nft, batch)?;
        for rule in wanted(addrs) {
            batch.append_seen_rule(TABLE, CHECKS, &rule, Some(&comment));
        }
        Ok(())
    })?;
    Ok(made.iter().map(|rule| rule.handle).collect())
}

/// The rules of these handles; `None` if one of them is not there, or not this attachment's: handles start over when a chain is
/// made anew.
fn known(nft: &mut Nft, key: &MasqueradeKey, handles: &[u64]) -> Result<Option<Vec<Rule>>, FirewallError> {
    let instance = key.instance();
    let mut rules = Vec::new();
    for handle in handles {
        match nft.rule(TABLE, CHECKS, *handle)? {
            Some(rule) if rule.handle == *handle && rule.commented(instance.as_bytes()) => rules.push(rule),
            _ => return Ok(None),
        }
    }
    Ok((!rules.is_empty()).then_some(rules))
}

/// Whether all that [`nft_ensure`] makes is there: the rules of each address, and the way that leads to them.
///
/// # Errors
/// The kernel refuses to show it, or the deadline passes.
pub fn nft_check(nft: &mut Nft, key: &MasqueradeKey, addrs: &[IpNet]) -> Result<bool, FirewallError> {
    is_complete(key, addrs, |chain| nft.rules(TABLE, chain))
}

/// The same of rules with handles from [`nft_add`]: where they are the attachment's still, no others are looked at.
///
/// # Errors
/// The kernel refuses to show it, or the deadline passes.
pub fn nft_check_known(
    nft: &mut Nft,
    key: &MasqueradeKey,
    addrs: &[IpNet],
    handles: &[u64],
) -> Result<bool, FirewallError> {
    if let Some(known) = known(nft, key, handles)? {
        let of_chain = |chain: &str| if chain == CHECKS { Ok(known.clone()) } else { nft.rules(TABLE, chain) };
        if is_complete(key, addrs, of_chain)? {
            return Ok(true);
        }
    }
    nft_check(nft, key, addrs)
}

/// As [`nft_check`], of the rules that each chain has by `rules`.
pub(crate) fn is_complete<R: AsRef<[Rule]>>(
    key: &MasqueradeKey,
    addrs: &[IpNet],
    mut rules: impl FnMut(&str) -> Result<R, FirewallError>,
) -> Result<bool, FirewallError> {
    let instance = key.instance();
    let present = rules(CHECKS)?;
    let own: Vec<&Rule> = present.as_ref().iter().filter(|rule| rule.commented(instance.as_bytes())).collect();
    if !wanted(addrs).iter().all(|wanted| own.iter().any(|rule| rule.is(wanted))) {
        return Ok(false);
    }
    let way = rules(POSTROUTING)?;
    Ok(postrouting_rules().iter().all(|wanted| way.as_ref().iter().any(|rule| rule.is(wanted))))
}

/// Removes the attachment's masquerading rules, whichever addresses they are for, and returns how many there were.
///
/// # Errors
/// The kernel refuses, or the deadline passes. That nothing is there is no error.
pub fn nft_remove(nft: &mut Nft, key: &MasqueradeKey) -> Result<usize, FirewallError> {
    nft_remove_known(nft, key, &[])
}

/// The same with handles from [`nft_add`]: where they are the attachment's still, they are its rules, and no others are looked
/// at. Each comment is read before its rule is deleted.
///
/// # Errors
/// As [`nft_remove`].
pub fn nft_remove_known(nft: &mut Nft, key: &MasqueradeKey, handles: &[u64]) -> Result<usize, FirewallError> {
    let instance = key.instance();
    nft.change(|nft, batch| {
        let rules = match known(nft, key, handles)? {
            Some(known) => known,
            None => nft.rules(TABLE, CHECKS)?,
        };
        let own: Vec<&Rule> = rules.iter().filter(|rule| rule.commented(instance.as_bytes())).collect();
        for rule in &own {
            batch.delete_rule(TABLE, CHECKS, rule.handle);
        }
        Ok(own.len())
    })
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
    let mut removed = Vec::new();
    let mut seen = HashSet::new();
    loop {
        let chunk = nft.change(|nft, batch| {
            let mut rules = nft.rules(TABLE, CHECKS)?;
            rules.retain(|rule| rule.commented(ours.as_bytes()) && !is_valid(rule));
            if rules.is_empty() {
                return Ok(Vec::new());
            }
            let busy = instances(&busy()?);
            rules.retain(|rule| instance_of(rule).is_none_or(|instance| !busy.contains(instance)));
            rules.truncate(CHUNK);
            for rule in &rules {
                batch.delete_rule(TABLE, CHECKS, rule.handle);
            }
            Ok(rules)
        })?;
        let last = chunk.len() < CHUNK;
        for rule in chunk {
            let comment = String::from_utf8_lossy(rule.comment.as_deref().unwrap_or_default()).into_owned();
            if seen.insert(comment.clone()) {
                removed.push(comment);
            }
        }
        if last {
            return Ok(removed);
        }
    }
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
    pub key: MasqueradeKey,
    /// Whether that is all of the container ID: longer comments are cut.
    pub whole: bool,
    comment: Vec<u8>,
}

impl Seen {
    fn read(rule: &Rule) -> Option<Self> {
        let comment = rule.comment.clone()?;
        let (key, whole) = MasqueradeKey::of_nft_comment(&comment)?;
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
    Ok(nft.rules(TABLE, CHECKS)?.iter().filter_map(Seen::read).collect())
}

/// Removes these rules, and returns how many of them were there.
///
/// # Errors
/// The kernel refuses, or the deadline passes.
pub fn nft_remove_seen(nft: &mut Nft, seen: &[Seen]) -> Result<usize, FirewallError> {
    let mut removed = 0;
    for chunk in seen.chunks(CHUNK) {
        removed += nft.change(|nft, batch| {
            let mut count = 0;
            for rule in nft.rules(TABLE, CHECKS)? {
                if Seen::read(&rule).is_some_and(|rule| chunk.contains(&rule)) {
                    batch.delete_rule(TABLE, CHECKS, rule.handle);
                    count += 1;
                }
            }
            Ok(count)
        })?;
    }
    Ok(removed)
}

/// Adds what is missing of the table, its chains and the rules that lead to `masq_checks`.
fn ensure_base(nft: &mut Nft, batch: &mut Batch) -> Result<(), FirewallError> {
    let exists = nft.table(TABLE)?.is_some();
    if !exists {
        batch.add_table(TABLE, Some(TABLE_COMMENT));
    }
    if !exists || nft.chain(TABLE, CHECKS)?.is_none() {
        batch.add_chain(TABLE, CHECKS, None, Some(CHECKS_COMMENT));
    }
    let postrouting = if exists { nft.chain(TABLE, POSTROUTING)? } else { None };
    let Some(postrouting) = postrouting else {
        let base = BaseChain { kind: "nat", hook: InetHookNumber::PostRouting, priority: 100 };
        batch.add_chain(TABLE, POSTROUTING, Some(base), None);
        for rule in postrouting_rules() {
            batch.append_rule(TABLE, POSTROUTING, &rule, None);
        }
        return Ok(());
    };
    if postrouting.kind.as_deref() != Some("nat") {
        return Err(FirewallError::new(
            "use chain",
            format!("{TABLE} {POSTROUTING}"),
            "it is no nat chain, and nothing would be masqueraded: delete the table, it will be made anew",
        ));
    }
    let present = nft.rules(TABLE, POSTROUTING)?;
    let missing = |rule: &[Expression]| !present.iter().any(|present| present.is(rule));
    let [multicast_v4, multicast_v6, checks] = postrouting_rules();
    // A rule that returns must come before the one that goes on, which is the last.
    for rule in [multicast_v6, multicast_v4] {
        if missing(&rule) {
            batch.insert_rule(TABLE, POSTROUTING, &rule, None);
        }
    }
    if missing(&checks) {
        batch.append_rule(TABLE, POSTROUTING, &checks, None);
    }
    Ok(())
}

/// Multicast is not masqueraded, everything else goes to `masq_checks`.
pub(crate) fn postrouting_rules() -> [Vec<Expression>; 3] {
    let multicast = |network: IpNet| {
        let mut rule = rule::family(network).to_vec();
        rule.extend(rule::address(Side::Destination, true, network));
        rule.push(rule::verdict(Verdict::Return));
        rule
    };
    [multicast(MULTICAST_V4), multicast(MULTICAST_V6), vec![rule::to_chain(Verdict::Goto, CHECKS)]]
}

/// The rules of these addresses in their order, each once.
fn wanted(addrs: &[IpNet]) -> Vec<Vec<Expression>> {
    let mut seen = HashSet::new();
    addrs.iter().filter(|address| seen.insert(**address)).map(|address| masquerade_rule(*address)).collect()
}

/// `ip saddr <address> ip daddr != <network> masquerade`.
fn masquerade_rule(address: IpNet) -> Vec<Expression> {
    let mut rule = rule::family(address).to_vec();
    rule.extend(rule::address(Side::Source, true, IpNet::from(address.addr())));
    rule.extend(rule::address(Side::Destination, false, address));
    rule.push(Expression::Masquerade);
    rule
}
