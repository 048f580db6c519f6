//! One MAC per bridge port (`macspoofchk`), by the native bridge plugin's nftables rules:
//!
//! ```text
//! table bridge nat
//!     chain PREROUTING               iifname <port> jump cni-br-iface-<id>
//!     chain cni-br-iface-<id>        jump cni-br-iface-<id>-mac
//!     chain cni-br-iface-<id>-mac    ether saddr <mac> return; drop
//! ```
//!
//! `<id>` is the container ID, a hyphen and the interface name; each rule's comment is `macspoofchk-<id>`. The table is
//! shared with ebtables and libvirt, so that nothing in it is touched that hasn't these names.
//!
//! Such names run together: `a-b` with `c` and `a` with `b-c` have one `<id>`, and the second chain of `c-eth0` is the
//! first of `c-eth0-mac`. Whose the rules are, the port tells that they begin at. [`claim`] leaves a name alone that
//! guards another port, which is there; its attachment then takes [`own_id`]. [`remove_unless`] removes no chain that
//! another attachment's rules lead to.

use std::sync::LazyLock;

use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_packet_netfilter::nftables::{InetHookNumber, Verdict};

use crate::key::hashed_parts;
use crate::nft::batch::{BaseChain, Table};
use crate::nft::ground::{Ground, Shared};
use crate::nft::rule::{self, Rule};
use crate::nft::set::{Entry, Look, Mark, Owner, RuleSet};
use crate::{FirewallError, Nft};

pub(crate) const TABLE: Table = Table { family: NetfilterProtoFamily::Bridge, name: "nat" };
const PREROUTING: &str = "PREROUTING";

const COMMENT_PREFIX: &str = "macspoofchk-";
const CHAIN_PREFIX: &str = "cni-br-iface-";
const MAC_SUFFIX: &str = "-mac";

/// What an ID of [`own_id`] begins with. Neither a container ID nor an interface name can have the slash.
const OWN_PREFIX: &str = "postern/";

/// The longest `<id>`: a chain name has at most 255 bytes (`NFT_NAME_MAXLEN`), and this leaves the comment within its
/// own limit too.
pub const ID_MAX: usize = 255 - CHAIN_PREFIX.len() - MAC_SUFFIX.len();

/// The native plugins' `<id>` of an attachment.
#[must_use]
pub fn native_id(container_id: &str, ifname: &str) -> String {
    format!("{container_id}-{ifname}")
}

/// An `<id>` that is one attachment's and no other's, for one whose [`native_id`] is taken.
#[must_use]
pub fn own_id(network: &str, container_id: &str, ifname: &str) -> String {
    format!("{OWN_PREFIX}{}", hashed_parts(&[network, container_id, ifname]))
}

/// Whether rules can be named after `id`: asked before it is written down that they will be made.
///
/// # Errors
/// It is too long, or empty.
pub fn validate(id: &str) -> Result<(), FirewallError> {
    if (1..=ID_MAX).contains(&id.len()) && !id.contains('\0') {
        return Ok(());
    }
    let length = id.len();
    let way_out = format!(
        "container ID and interface name have {length} bytes with the hyphen between them, and a chain's name has room \
         for {ID_MAX}: give the container a shorter ID, or the network no \"macspoofchk\""
    );
    Err(FirewallError::new("name spoofing protection after", id, way_out))
}

/// What all guards share. An empty chain is no sign that the table is ours: it is looked at before it is removed.
pub(crate) static GROUND: LazyLock<Ground> = LazyLock::new(|| {
    let prerouting = Shared {
        name: PREROUTING,
        base: Some(BaseChain { kind: "filter", hook: InetHookNumber::PreRouting, priority: -300 }),
        wrong_kind: None,
        comment: None,
        rules: Vec::new(),
        has_entries: true,
    };
    Ground { table: TABLE, comment: None, shared: vec![prerouting], kind: COMMENT_PREFIX, is_named_for_plugins: false }
});

/// The names that an attachment's rules and chains bear.
fn owner(id: &str) -> Result<Owner<'static>, FirewallError> {
    validate(id)?;
    Ok(Owner {
        ground: &GROUND,
        mark: Mark { comment: format!("{COMMENT_PREFIX}{id}").into_bytes(), telling: None },
        chains: chains(id).into(),
        // The attachment whose second chain has the name of this one's first.
        outer: id.strip_suffix(MAC_SUFFIX).map(|outer| format!("{CHAIN_PREFIX}{outer}")),
    })
}

/// Its chains; the first one leads to the second.
fn chains(id: &str) -> [String; 2] {
    [format!("{CHAIN_PREFIX}{id}"), format!("{CHAIN_PREFIX}{id}{MAC_SUFFIX}")]
}

/// The port that a guard's first rule is about.
fn port_of(rule: &Rule) -> Option<String> {
    rule::input_interface_of(&rule.expressions()).map(|(port, _)| port)
}

/// The rules of an attachment.
fn rules(id: &str, host_ifname: &str, mac: [u8; 6]) -> Result<RuleSet<'static>, FirewallError> {
    let owner = owner(id)?;
    // IFNAMSIZ, with its final NUL.
    if host_ifname.is_empty() || host_ifname.len() > 15 || host_ifname.contains('\0') {
        return Err(FirewallError::new(
            "guard bridge port",
            host_ifname,
            "an interface name has 1 to 15 bytes, none of them zero",
        ));
    }
    let [to_port, to_mac] = chains(id).map(|chain| rule::to_chain(Verdict::Jump, &chain));
    let mut entry = rule::input_interface(host_ifname).to_vec();
    entry.push(to_port);
    let mut pass = rule::source_mac(mac).to_vec();
    pass.push(rule::verdict(Verdict::Return));
    Ok(RuleSet {
        owner,
        entries: vec![Entry { chain: PREROUTING, rule: entry }],
        contents: vec![vec![vec![to_mac]], vec![pass, vec![rule::drop_packet()]]],
    })
}

/// Makes sure that frames that enter the bridge by `host_ifname` are dropped unless `mac` is their source, in one
/// transaction; nothing is changed if all is there. Rules of the same `id` for another port or MAC are replaced.
///
/// # Errors
/// A name is too long, the kernel refuses, or the deadline passes.
pub fn ensure(nft: &mut Nft, id: &str, host_ifname: &str, mac: [u8; 6]) -> Result<(), FirewallError> {
    claim(nft, id, host_ifname, mac, |_| false).map(drop)
}

/// The same, unless chains of these names guard another port for which `is_anothers` holds: then nothing is changed, and there
/// is no answer. Who comes first has the name: look and change are one transaction. The answer is the handle of the rule by
/// which frames enter, if it was made now: the record keeps it, and the rule is found by it again.
///
/// # Errors
/// As [`ensure`].
pub fn claim(
    nft: &mut Nft,
    id: &str,
    host_ifname: &str,
    mac: [u8; 6],
    is_anothers: impl Fn(&str) -> bool,
) -> Result<Option<Vec<u64>>, FirewallError> {
    let rules = rules(id, host_ifname, mac)?;
    let owner = &rules.owner;
    rules.ensure(nft, Look::All, |rule| {
        (owner.mark.is_on(rule) || owner.is_reached_by(rule))
            && port_of(rule).is_some_and(|port| port != host_ifname && is_anothers(&port))
    })
}

/// Whether all that [`ensure`] makes is there, and effective: an attachment's own chains hold nothing else. Of a name
/// that no rules can have nothing is there.
///
/// # Errors
/// The kernel refuses to show it, or the deadline passes.
pub fn check(nft: &mut Nft, id: &str, host_ifname: &str, mac: [u8; 6]) -> Result<bool, FirewallError> {
    check_known(nft, id, host_ifname, mac, &[])
}

/// The same with handles from [`claim`]: where they are the attachment's still, the rules of others are not looked at.
///
/// # Errors
/// As [`check`].
pub fn check_known(
    nft: &mut Nft,
    id: &str,
    host_ifname: &str,
    mac: [u8; 6],
    handles: &[u64],
) -> Result<bool, FirewallError> {
    if validate(id).is_err() {
        return Ok(false);
    }
    rules(id, host_ifname, mac)?.check(nft, handles)
}

/// As [`check`], of the rules that each chain has by `rules`.
pub(crate) fn is_complete<R: AsRef<[Rule]>>(
    id: &str,
    host_ifname: &str,
    mac: [u8; 6],
    of_chain: impl FnMut(&str) -> Result<R, FirewallError>,
) -> Result<bool, FirewallError> {
    if validate(id).is_err() {
        return Ok(false);
    }
    rules(id, host_ifname, mac)?.is_complete(of_chain)
}

/// Removes the rules and chains of `id` in one transaction, and returns whether there was anything.
///
/// # Errors
/// A rule that is no guard's refers to a chain (`EBUSY`), the kernel refuses, or the deadline passes. That nothing is
/// there, or that nothing can be there as no rules can have the name, is no error.
pub fn remove(nft: &mut Nft, id: &str) -> Result<bool, FirewallError> {
    remove_unless(nft, id, &[], |_| false)
}

/// The same, but for rules that guard a port for which `is_anothers` holds, and for chains that another's rules lead to. With
/// handles from [`claim`], where they are the attachment's still, the rules of others are not looked at.
///
/// # Errors
/// As [`remove`].
pub fn remove_unless(
    nft: &mut Nft,
    id: &str,
    handles: &[u64],
    is_anothers: impl Fn(&str) -> bool,
) -> Result<bool, FirewallError> {
    let Ok(owner) = owner(id) else { return Ok(false) };
    let goes = |rule: &Rule| !port_of(rule).is_some_and(|port| is_anothers(&port));
    owner.remove(nft, handles, goes).map(|removed| removed.entries + removed.chains > 0)
}

/// A bridge port that is guarded, as its rule says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Whose it is: container ID, a hyphen, interface name.
    pub id: String,
    /// The port's name.
    pub ifname: String,
}

impl Port {
    fn read(rule: &Rule) -> Option<Self> {
        let id = std::str::from_utf8(id_of(rule)?).ok()?;
        let owner = owner(id).ok()?;
        let expressions = rule.expressions();
        let (ifname, rest) = rule::input_interface_of(&expressions)?;
        let lead = owner.chains.first().map(|chain| rule::to_chain(Verdict::Jump, chain));
        rest.iter().eq(lead.as_ref()).then(|| Self { id: id.to_owned(), ifname })
    }
}

/// All guarded ports, whoever guards them. Rules that are not in the form of [`ensure`] are left out. Changes nothing.
///
/// # Errors
/// The kernel refuses to show them, or the deadline passes.
pub fn list(nft: &mut Nft) -> Result<Vec<Port>, FirewallError> {
    GROUND.list(nft, Port::read)
}

/// Removes the rules and chains of `id` if none of its ports is there any more, and returns whether it did. `exists` is
/// asked after the rules were read: an attachment that is being made has its port by then.
///
/// # Errors
/// As [`remove`].
pub fn remove_unused(nft: &mut Nft, id: &str, exists: impl Fn(&str) -> bool) -> Result<bool, FirewallError> {
    let Ok(owner) = owner(id) else { return Ok(false) };
    // One that can't be read may be about any port.
    let unused = |rule: &Rule| Port::read(rule).is_some_and(|port| !exists(&port.ifname));
    let removed = owner.remove_if(nft, |own| !own.is_empty() && own.iter().all(unused))?;
    Ok(removed.is_some())
}

/// The IDs of all attachments that have rules or chains here, each once.
///
/// # Errors
/// The kernel refuses to show them, or the deadline passes.
pub(crate) fn ids(nft: &mut Nft) -> Result<Vec<String>, FirewallError> {
    let mut ids: Vec<String> = nft.chain_names(TABLE)?.iter().filter_map(|chain| chain_id(chain)).collect();
    ids.extend(GROUND.list(nft, |rule| id_of(rule).map(|id| String::from_utf8_lossy(id).into_owned()))?);
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// The commands that remove what there is of an ID; none if a shell could take its names for more than names.
///
/// # Errors
/// As [`ids`].
pub(crate) fn removal(nft: &mut Nft, id: &str) -> Result<Vec<String>, FirewallError> {
    let Ok(owner) = owner(id) else { return Ok(Vec::new()) };
    if !id.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c)) {
        return Ok(Vec::new());
    }
    Ok(owner.removal(nft, |_| true)?.commands())
}

/// The ID in the comment of a rule.
fn id_of(rule: &Rule) -> Option<&[u8]> {
    rule.comment.as_deref()?.strip_prefix(COMMENT_PREFIX.as_bytes())
}

/// The ID in the name of an attachment's first chain.
fn chain_id(chain: &str) -> Option<String> {
    let id = chain.strip_prefix(CHAIN_PREFIX)?;
    (!id.ends_with(MAC_SUFFIX)).then(|| id.to_owned())
}
