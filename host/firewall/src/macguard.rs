//! One MAC per bridge port (`macspoofchk`), by the native bridge plugin's nftables rules:
//!
//! ```text
//! table bridge nat
//!     chain PREROUTING               iifname <port> jump cni-br-iface-<id>
//!     chain cni-br-iface-<id>        jump cni-br-iface-<id>-mac
//!     chain cni-br-iface-<id>-mac    ether saddr <mac> return; drop
//! ```
//!
//! `<id>` is the container ID, a hyphen and the interface name. Each rule's comment is `macspoofchk-<id>`. ebtables and
//! libvirt use the same table, so only objects with these names are touched.
//!
//! Different attachments can get the same name. Container `a-b` with interface `c` and container `a` with interface
//! `b-c` have the same `<id>`. The second chain of `c-eth0` has the name of the first chain of `c-eth0-mac`. The port
//! in the first rule identifies the owner. If the native name guards another existing port, [`claim`] does not take
//! this name, and the attachment uses [`own_id`]. [`remove_unless`] keeps every chain that another attachment's rules
//! lead to.

use crate::key::hashed_parts;
use crate::nft::prelude::*;

pub(crate) const TABLE: Table = Table { family: NetfilterProtoFamily::Bridge, name: "nat" };
const PREROUTING: &str = "PREROUTING";

const COMMENT_PREFIX: &str = "macspoofchk-";
const CHAIN_PREFIX: &str = "cni-br-iface-";
const MAC_SUFFIX: &str = "-mac";

/// The beginning of an ID of [`own_id`]. Neither a container ID nor an interface name can contain the slash.
const OWN_PREFIX: &str = "postern/";

/// The longest `<id>`. A chain name has at most 255 bytes (`NFT_NAME_MAXLEN`). A comment with the longest `<id>` fits
/// the limit for comments too.
pub const ID_MAX: usize = 255 - CHAIN_PREFIX.len() - MAC_SUFFIX.len();

/// Returns the native plugins' `<id>` of an attachment.
#[must_use]
pub fn native_id(container_id: &str, ifname: &str) -> String {
    format!("{container_id}-{ifname}")
}

/// Returns an `<id>` that only this attachment can have. It is used if the attachment's [`native_id`] is taken.
#[must_use]
pub fn own_id(network: &str, container_id: &str, ifname: &str) -> String {
    format!("{OWN_PREFIX}{}", hashed_parts(&[network, container_id, ifname]))
}

/// Checks that rules can be named after `id`. Call this function before a record announces the rules.
///
/// # Errors
/// The ID is too long, or empty.
pub fn validate(id: &str) -> Result<(), FirewallError> {
    if (1..=ID_MAX).contains(&id.len()) && !id.contains('\0') {
        return Ok(());
    }
    let length = id.len();
    let way_out = format!(
        "container ID, hyphen and interface name have {length} bytes, and a chain's name has room for {ID_MAX}; use a \
         shorter container ID, or a network without \"macspoofchk\""
    );
    Err(FirewallError::new("name spoofing protection after", id, way_out))
}

/// The objects that all guards share. An empty chain does not prove that the plugins made the table, so the table is
/// checked before it is removed.
pub static SHARED: LazyLock<SharedTable> = LazyLock::new(|| {
    let prerouting = SharedChain {
        name: PREROUTING,
        base: Some(BaseChain { kind: "filter", hook: InetHookNumber::PreRouting, priority: -300 }),
        has_entries: true,
        ..SharedChain::default()
    };
    SharedTable {
        table: TABLE,
        comment: None,
        chains: vec![prerouting],
        kind: COMMENT_PREFIX,
        is_named_for_plugins: false,
    }
});

/// Returns the owner with the names that an attachment's rules and chains have.
fn owner(id: &str) -> Result<NftOwner, FirewallError> {
    validate(id)?;
    Ok(NftOwner {
        shared: &SHARED,
        mark: Mark { comment: format!("{COMMENT_PREFIX}{id}").into_bytes(), identifying: None },
        chains: chains(id).into(),
        // Another attachment's second chain can have the name of this attachment's first chain. `outer` is the first
        // chain of the other attachment.
        outer: id.strip_suffix(MAC_SUFFIX).map(|outer| format!("{CHAIN_PREFIX}{outer}")),
    })
}

/// Returns the attachment's two chains; the first leads to the second.
fn chains(id: &str) -> [String; 2] {
    [format!("{CHAIN_PREFIX}{id}"), format!("{CHAIN_PREFIX}{id}{MAC_SUFFIX}")]
}

/// Returns the port in a guard's first rule.
fn port_of(rule: &NftRule) -> Option<String> {
    rule::input_interface_of(&rule.expressions()).map(|(port, _)| port)
}

/// Returns the rules of an attachment.
pub(crate) fn rules(id: &str, host_ifname: &str, mac: [u8; 6]) -> Result<NftRuleSet, FirewallError> {
    let owner = owner(id)?;
    // IFNAMSIZ, with its final NUL.
    if host_ifname.is_empty() || host_ifname.len() > 15 || host_ifname.contains('\0') {
        let why = "an interface name has 1 to 15 bytes, none of them zero";
        return Err(FirewallError::new("guard bridge port", host_ifname, why));
    }
    let [to_port, to_mac] = chains(id).map(|chain| rule::to_chain(Verdict::Jump, &chain));
    let mut entry = rule::input_interface(host_ifname).to_vec();
    entry.push(to_port);
    let mut pass = rule::source_mac(mac).to_vec();
    pass.push(rule::verdict(Verdict::Return));
    Ok(NftRuleSet {
        owner,
        entries: vec![SharedRule { chain: PREROUTING, rule: entry }],
        contents: vec![vec![vec![to_mac]], vec![pass, vec![rule::drop_packet()]]],
    })
}

/// Makes sure that the bridge drops frames from `host_ifname` whose source is not `mac`. Uses one transaction, and
/// changes nothing if everything is there. Rules of the same `id` for another port or MAC are replaced.
///
/// If chains named after `id` guard another port that `is_anothers` accepts, nothing changes and the result is `None`.
/// The check and the change are one transaction, so the first attachment gets the name. The inner value is the handle
/// of the first rule, if the rule is new. The record keeps the handle, to find the rule again.
///
/// # Errors
/// A name is too long, the kernel refuses, or the deadline passes.
pub fn claim(
    nft: &mut Nft,
    id: &str,
    host_ifname: &str,
    mac: [u8; 6],
    is_anothers: impl Fn(&str) -> bool,
) -> Result<Option<Vec<u64>>, FirewallError> {
    let rules = rules(id, host_ifname, mac)?;
    let owner = &rules.owner;
    rules.ensure(nft, EntryScope::All, |rule| {
        (owner.mark.is_on(rule) || owner.is_reached_by(rule))
            && port_of(rule).is_some_and(|port| port != host_ifname && is_anothers(&port))
    })
}

/// True if everything that [`claim`] makes is there and effective: the attachment's own chains have no other rules.
/// False if [`validate`] refuses `id`. If the handles from [`claim`] still belong to the attachment's rules, no other
/// rules are read.
///
/// # Errors
/// The kernel refuses to show the rules, or the deadline passes.
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

/// Removes the rules and chains of `id` in one transaction. Returns true if a rule or chain was removed. Rules that
/// guard a port that `is_anothers` accepts stay. Chains that another attachment's rules lead to stay. If the
/// handles from [`claim`] still belong to the attachment's rules, no other rules are read.
///
/// # Errors
/// A foreign rule refers to a chain (`EBUSY`), the kernel refuses, or the deadline passes. Missing rules are no error,
/// even if [`validate`] refuses `id`.
pub fn remove_unless(
    nft: &mut Nft,
    id: &str,
    handles: &[u64],
    is_anothers: impl Fn(&str) -> bool,
) -> Result<bool, FirewallError> {
    let Ok(owner) = owner(id) else { return Ok(false) };
    let goes = |rule: &NftRule| !port_of(rule).is_some_and(|port| is_anothers(&port));
    owner.remove(nft, handles, &[], goes).map(|removed| removed > 0)
}

/// A guarded bridge port, as its rule names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardedPort {
    /// The owner: container ID, a hyphen, interface name.
    pub id: String,
    /// The port's name.
    pub ifname: String,
}

impl GuardedPort {
    fn read(rule: &NftRule) -> Option<Self> {
        let id = std::str::from_utf8(id_of(rule)?).ok()?;
        let owner = owner(id).ok()?;
        let expressions = rule.expressions();
        let (ifname, rest) = rule::input_interface_of(&expressions)?;
        let lead = owner.chains.first().map(|chain| rule::to_chain(Verdict::Jump, chain));
        rest.iter().eq(lead.as_ref()).then(|| Self { id: id.to_owned(), ifname })
    }
}

/// Returns all guarded ports of all owners. Rules with another form than [`claim`]'s are left out. Changes nothing.
///
/// # Errors
/// The kernel refuses to show the rules, or the deadline passes.
pub fn list(nft: &mut Nft) -> Result<Vec<GuardedPort>, FirewallError> {
    SHARED.list(nft, GuardedPort::read)
}

/// Removes the rules and chains of `id` if no port in these rules exists any more. Returns true if they were removed.
/// `exists` is called after the rules were read. An attachment that is being made has its port by then.
///
/// # Errors
/// The errors of [`remove_unless`].
pub fn remove_unused(nft: &mut Nft, id: &str, exists: impl Fn(&str) -> bool) -> Result<bool, FirewallError> {
    let Ok(owner) = owner(id) else { return Ok(false) };
    // A rule that can't be read may be about any port.
    let unused = |rule: &NftRule| GuardedPort::read(rule).is_some_and(|port| !exists(&port.ifname));
    owner.remove_if(nft, |own| !own.is_empty() && own.iter().all(unused))
}

/// Returns the IDs of all attachments that have rules or chains in this table, each once.
pub(crate) fn ids(nft: &mut Nft) -> Result<Vec<String>, FirewallError> {
    let mut ids: Vec<String> = nft.chain_names(TABLE)?.iter().filter_map(|chain| chain_id(chain)).collect();
    ids.extend(SHARED.list(nft, |rule| id_of(rule).map(|id| String::from_utf8_lossy(id).into_owned()))?);
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// Returns the commands that remove all rules and chains of an ID. Empty if the ID has characters that a
/// shell could interpret.
pub(crate) fn removal(nft: &mut Nft, id: &str) -> Result<Vec<String>, FirewallError> {
    let Ok(owner) = owner(id) else { return Ok(Vec::new()) };
    if !id.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c)) {
        return Ok(Vec::new());
    }
    Ok(owner.removal(nft, |_| true)?.commands())
}

/// Returns the ID in the comment of a rule.
fn id_of(rule: &NftRule) -> Option<&[u8]> {
    rule.comment.as_deref()?.strip_prefix(COMMENT_PREFIX.as_bytes())
}

/// Returns the ID in the name of an attachment's first chain.
fn chain_id(chain: &str) -> Option<String> {
    let id = chain.strip_prefix(CHAIN_PREFIX)?;
    (!id.ends_with(MAC_SUFFIX)).then(|| id.to_owned())
}
