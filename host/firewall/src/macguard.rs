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

use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_packet_netfilter::nftables::{InetHookNumber, Verdict};

use crate::batch::{BaseChain, Batch, Table};
use crate::key::hashed_parts;
use crate::rule::{self, Expression, Rule};
use crate::{FirewallError, Nft};

pub(crate) const TABLE: Table = Table { family: NetfilterProtoFamily::Bridge, name: "nat" };
pub(crate) const PREROUTING: &str = "PREROUTING";

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

/// The names that an attachment's rules and chains bear.
struct Names {
    port_chain: String,
    mac_chain: String,
    comment: String,
    /// The first chain of the attachment whose second chain has the name of this one's first.
    outer_chain: Option<String>,
}

impl Names {
    fn new(id: &str) -> Result<Self, FirewallError> {
        validate(id)?;
        Ok(Self {
            port_chain: format!("{CHAIN_PREFIX}{id}"),
            mac_chain: format!("{CHAIN_PREFIX}{id}{MAC_SUFFIX}"),
            comment: format!("{COMMENT_PREFIX}{id}"),
            outer_chain: id.strip_suffix(MAC_SUFFIX).map(|outer| format!("{CHAIN_PREFIX}{outer}")),
        })
    }

    /// Those of its chains that are there.
    fn chains(&self, nft: &mut Nft) -> Result<Vec<&str>, FirewallError> {
        let mut chains = Vec::new();
        for chain in [&self.port_chain, &self.mac_chain] {
            if nft.chain(TABLE, chain)?.is_some() {
                chains.push(chain.as_str());
            }
        }
        Ok(chains)
    }

    fn marks(&self, rule: &Rule) -> bool {
        rule.comment.as_deref() == Some(self.comment.as_bytes())
    }

    /// Whether a rule leads to one of the chains, or to one that itself leads there.
    fn concerns(&self, rule: &Rule) -> bool {
        let own = [Some(&self.port_chain), Some(&self.mac_chain), self.outer_chain.as_ref()];
        target(rule).is_some_and(|target| own.contains(&Some(&target)))
    }
}

/// The chain that a guard's first rule leads to; `None` for rules that bear no guard's comment.
fn target(rule: &Rule) -> Option<String> {
    id_of(rule)?;
    rule.expressions().into_iter().find_map(|expression| match expression {
        Expression::Verdict { chain, .. } => chain,
        _ => None,
    })
}

/// The port that a guard's first rule is about.
fn port_of(rule: &Rule) -> Option<String> {
    rule::input_interface_of(&rule.expressions()).map(|(port, _)| port)
}

/// The rules of an attachment, chain by chain.
struct Wanted {
    entry: Vec<Expression>,
    port: Vec<Vec<Expression>>,
    mac: Vec<Vec<Expression>>,
}

impl Wanted {
    fn new(names: &Names, host_ifname: &str, mac: [u8; 6]) -> Result<Self, FirewallError> {
        // IFNAMSIZ, with its final NUL.
        if host_ifname.is_empty() || host_ifname.len() > 15 || host_ifname.contains('\0') {
            return Err(FirewallError::new(
                "guard bridge port",
                host_ifname,
                "an interface name has 1 to 15 bytes, none of them zero",
            ));
        }
        let mut entry = rule::input_interface(host_ifname).to_vec();
        entry.push(rule::to_chain(Verdict::Jump, &names.port_chain));
        let mut pass = rule::source_mac(mac).to_vec();
        pass.push(rule::verdict(Verdict::Return));
        Ok(Self {
            entry,
            port: vec![vec![rule::to_chain(Verdict::Jump, &names.mac_chain)]],
            mac: vec![pass, vec![rule::drop_packet()]],
        })
    }
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
    let names = Names::new(id)?;
    let wanted = Wanted::new(&names, host_ifname, mac)?;
    let (is_ours, made) = nft.change_and_see(|nft, batch| {
        let exists = nft.table(TABLE)?.is_some();
        let there: Vec<&str> = if exists { names.chains(nft)? } else { Vec::new() };
        // Where no chain has the name no rule can lead to it: nothing of others has to be looked at.
        let entries = if there.is_empty() { Vec::new() } else { nft.rules(TABLE, PREROUTING)? };
        let strange = |rule: &&Rule| {
            (names.marks(rule) || names.concerns(rule))
                && port_of(rule).is_some_and(|port| port != host_ifname && is_anothers(&port))
        };
        nft.forget();
        if entries.iter().any(|rule| strange(&rule)) {
            return Ok(false);
        }
        if !exists {
            batch.add_table(TABLE, None);
        }
        if !exists || nft.chain(TABLE, PREROUTING)?.is_none() {
            let base = BaseChain { kind: "filter", hook: InetHookNumber::PreRouting, priority: -300 };
            batch.add_chain(TABLE, PREROUTING, Some(base), None);
        }
        let mut stale = false;
        for (chain, rules) in [(&names.port_chain, &wanted.port), (&names.mac_chain, &wanted.mac)] {
            if !there.contains(&chain.as_str()) {
                batch.add_chain(TABLE, chain, None, None);
                stale = true;
            } else if !complete(&names, &nft.rules(TABLE, chain)?, rules) {
                stale = true;
            }
        }
        // Refilled together: the rules of one refer to the other.
        if stale {
            for (chain, rules) in [(&names.port_chain, &wanted.port), (&names.mac_chain, &wanted.mac)] {
                if there.contains(&chain.as_str()) {
                    batch.flush_chain(TABLE, chain);
                }
                for rule in rules {
                    batch.append_rule(TABLE, chain, rule, Some(names.comment.as_bytes()));
                }
            }
        }
        ensure_entry(&entries, batch, &names, &wanted.entry);
        nft.witness((id.to_owned(), host_ifname.to_owned(), mac), batch);
        Ok(true)
    })?;
    Ok(is_ours.then(|| made.iter().map(|rule| rule.handle).collect()))
}

/// Exactly one rule in `PREROUTING` is to bear the attachment's comment: the wanted one.
fn ensure_entry(entries: &[Rule], batch: &mut Batch, names: &Names, entry: &[Expression]) {
    let mut found = false;
    for rule in entries.iter().filter(|rule| names.marks(rule)) {
        if !found && rule.is(entry) {
            found = true;
        } else {
            batch.delete_rule(TABLE, PREROUTING, rule.handle);
        }
    }
    if !found {
        batch.append_seen_rule(TABLE, PREROUTING, entry, Some(names.comment.as_bytes()));
    }
}

/// Whether all that [`ensure`] makes is there, and effective: an attachment's own chains hold nothing else. Of a name
/// that no rules can have nothing is there.
///
/// # Errors
/// The kernel refuses to show it, or the deadline passes.
pub fn check(nft: &mut Nft, id: &str, host_ifname: &str, mac: [u8; 6]) -> Result<bool, FirewallError> {
    // Made by this connection, and nobody has changed anything since: asking for the generation costs microseconds,
    // asking for the rules grows with the number of attachments.
    if nft.is_untouched(&(id.to_owned(), host_ifname.to_owned(), mac))? {
        return Ok(true);
    }
    is_complete(id, host_ifname, mac, |chain| nft.rules(TABLE, chain))
}

/// The same with handles from [`claim`]: where one of them is the attachment's still, the rules of others are not looked at.
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
    if let Ok(names) = Names::new(id)
        && let Some(entry) = known(nft, &names, handles)?
    {
        let of_chain =
            |chain: &str| if chain == PREROUTING { Ok(vec![entry.clone()]) } else { nft.rules(TABLE, chain) };
        if is_complete(id, host_ifname, mac, of_chain)? {
            return Ok(true);
        }
    }
    check(nft, id, host_ifname, mac)
}

/// The rule of these names that has one of these handles still: handles start over when a chain is made anew.
fn known(nft: &mut Nft, names: &Names, handles: &[u64]) -> Result<Option<Rule>, FirewallError> {
    for handle in handles {
        let found = nft.rule(TABLE, PREROUTING, *handle)?;
        if let Some(rule) = found.filter(|rule| rule.handle == *handle && names.marks(rule)) {
            return Ok(Some(rule));
        }
    }
    Ok(None)
}

/// As [`check`], of the rules that each chain has by `rules`.
pub(crate) fn is_complete<R: AsRef<[Rule]>>(
    id: &str,
    host_ifname: &str,
    mac: [u8; 6],
    mut rules: impl FnMut(&str) -> Result<R, FirewallError>,
) -> Result<bool, FirewallError> {
    let Ok(names) = Names::new(id) else { return Ok(false) };
    let wanted = Wanted::new(&names, host_ifname, mac)?;
    let entered = rules(PREROUTING)?.as_ref().iter().any(|rule| names.marks(rule) && rule.is(&wanted.entry));
    Ok(entered
        && complete(&names, rules(&names.port_chain)?.as_ref(), &wanted.port)
        && complete(&names, rules(&names.mac_chain)?.as_ref(), &wanted.mac))
}

fn complete(names: &Names, present: &[Rule], wanted: &[Vec<Expression>]) -> bool {
    present.len() == wanted.len()
        && present.iter().zip(wanted).all(|(present, wanted)| names.marks(present) && present.is(wanted))
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
/// handles from [`claim`], where one of them is the attachment's still, the rules of others are not looked at.
///
/// # Errors
/// As [`remove`].
pub fn remove_unless(
    nft: &mut Nft,
    id: &str,
    handles: &[u64],
    is_anothers: impl Fn(&str) -> bool,
) -> Result<bool, FirewallError> {
    let Ok(names) = Names::new(id) else { return Ok(false) };
    let goes = |rule: &Rule| !port_of(rule).is_some_and(|port| is_anothers(&port));
    nft.forget();
    nft.change(|nft, batch| {
        let removal = match Removal::of_known(nft, &names, handles, goes)? {
            Some(removal) => removal,
            None => Removal::plan(nft, &names, goes)?,
        };
        removal.put_into(batch);
        Ok(!batch.is_empty())
    })
}

/// What is to be removed of an attachment.
struct Removal<'a> {
    /// Handles of rules in `PREROUTING`.
    entries: Vec<u64>,
    chains: Vec<&'a str>,
}

impl<'a> Removal<'a> {
    /// The attachment's rules for which `goes` holds, and its chains to which no other guard's rules lead.
    fn plan(nft: &mut Nft, names: &'a Names, goes: impl Fn(&Rule) -> bool) -> Result<Self, FirewallError> {
        let mut chains = names.chains(nft)?;
        let rules = if chains.is_empty() { Vec::new() } else { nft.rules(TABLE, PREROUTING)? };
        let (going, staying): (Vec<&Rule>, Vec<&Rule>) = rules.iter().partition(|rule| names.marks(rule) && goes(rule));
        let targets: Vec<String> = staying.into_iter().filter_map(target).collect();
        // The chain of whose name this one's is made is the first of a guard with a shorter name, and leads here.
        let outer = match &names.outer_chain {
            Some(outer) => nft.chain(TABLE, outer)?.is_some(),
            None => false,
        };
        let port_held = outer || targets.contains(&names.port_chain);
        let mac_held = targets.contains(&names.mac_chain) || port_held && chains.contains(&names.port_chain.as_str());
        chains.retain(|chain| if *chain == names.port_chain { !port_held } else { !mac_held });
        Ok(Self { entries: going.iter().map(|rule| rule.handle).collect(), chains })
    }

    /// The same by the handle of the rule that leads to the chains, if the kernel says that no other rule does.
    fn of_known(
        nft: &mut Nft,
        names: &'a Names,
        handles: &[u64],
        goes: impl Fn(&Rule) -> bool,
    ) -> Result<Option<Self>, FirewallError> {
        let Some(entry) = known(nft, names, handles)?.filter(goes) else { return Ok(None) };
        let chains = [names.port_chain.as_str(), names.mac_chain.as_str()];
        for chain in chains {
            let uses = nft.chain(TABLE, chain)?.map(|chain| chain.uses);
            let own = u32::try_from(nft.rules(TABLE, chain)?.len()).unwrap_or(u32::MAX);
            if uses != own.checked_add(1) {
                return Ok(None);
            }
        }
        Ok(Some(Self { entries: vec![entry.handle], chains: chains.to_vec() }))
    }

    /// Rules first: a chain that another one jumps to can't be deleted.
    fn put_into(&self, batch: &mut Batch) {
        for handle in &self.entries {
            batch.delete_rule(TABLE, PREROUTING, *handle);
        }
        for chain in &self.chains {
            batch.flush_chain(TABLE, chain);
        }
        for chain in &self.chains {
            batch.delete_chain(TABLE, chain);
        }
    }
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
        let names = Names::new(id).ok()?;
        let expressions = rule.expressions();
        let (ifname, rest) = rule::input_interface_of(&expressions)?;
        (*rest == [rule::to_chain(Verdict::Jump, &names.port_chain)]).then(|| Self { id: id.to_owned(), ifname })
    }
}

/// All guarded ports, whoever guards them. Rules that are not in the form of [`ensure`] are left out. Changes nothing.
///
/// # Errors
/// The kernel refuses to show them, or the deadline passes.
pub fn list(nft: &mut Nft) -> Result<Vec<Port>, FirewallError> {
    Ok(nft.rules(TABLE, PREROUTING)?.iter().filter_map(Port::read).collect())
}

/// Removes the rules and chains of `id` if none of its ports is there any more, and returns whether it did. `exists` is
/// asked after the rules were read: an attachment that is being made has its port by then.
///
/// # Errors
/// As [`remove`].
pub fn remove_unused(nft: &mut Nft, id: &str, exists: impl Fn(&str) -> bool) -> Result<bool, FirewallError> {
    let Ok(names) = Names::new(id) else { return Ok(false) };
    nft.change(|nft, batch| {
        let rules = nft.rules(TABLE, PREROUTING)?;
        let own: Vec<&Rule> = rules.iter().filter(|rule| names.marks(rule)).collect();
        // One that can't be read may be about any port.
        let unused = |rule: &&Rule| Port::read(rule).is_some_and(|port| !exists(&port.ifname));
        if own.is_empty() || !own.iter().all(unused) {
            return Ok(false);
        }
        Removal::plan(nft, &names, |_| true)?.put_into(batch);
        Ok(true)
    })
}

/// The IDs of all attachments that have rules or chains here, each once.
///
/// # Errors
/// The kernel refuses to show them, or the deadline passes.
pub(crate) fn ids(nft: &mut Nft) -> Result<Vec<String>, FirewallError> {
    let mut ids: Vec<String> = nft.chain_names(TABLE)?.iter().filter_map(|chain| chain_id(chain)).collect();
    for rule in nft.rules(TABLE, PREROUTING)? {
        ids.extend(id_of(&rule).map(|id| String::from_utf8_lossy(id).into_owned()));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// The commands that remove what there is of an ID; none if a shell could take its names for more than names.
///
/// # Errors
/// As [`ids`].
pub(crate) fn removal(nft: &mut Nft, id: &str) -> Result<Vec<String>, FirewallError> {
    let Ok(names) = Names::new(id) else { return Ok(Vec::new()) };
    if !id.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c)) {
        return Ok(Vec::new());
    }
    let removal = Removal::plan(nft, &names, |_| true)?;
    let mut commands = Vec::new();
    for handle in removal.entries {
        commands.push(format!("nft delete rule {TABLE} {PREROUTING} handle {handle}"));
    }
    for command in ["flush", "delete"] {
        commands.extend(removal.chains.iter().map(|chain| format!("nft {command} chain {TABLE} {chain}")));
    }
    Ok(commands)
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
