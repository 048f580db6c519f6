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

use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_packet_netfilter::nftables::{InetHookNumber, Verdict};

use crate::batch::{BaseChain, Batch, Table};
use crate::rule::{self, Expression, Rule};
use crate::{FirewallError, Nft};

pub(crate) const TABLE: Table = Table { family: NetfilterProtoFamily::Bridge, name: "nat" };
pub(crate) const PREROUTING: &str = "PREROUTING";

const COMMENT_PREFIX: &str = "macspoofchk-";
const CHAIN_PREFIX: &str = "cni-br-iface-";
const MAC_SUFFIX: &str = "-mac";

/// The longest `<id>`: a chain name has at most 255 bytes (`NFT_NAME_MAXLEN`), and this leaves the comment within its
/// own limit too.
pub const ID_MAX: usize = 255 - CHAIN_PREFIX.len() - MAC_SUFFIX.len();

/// Deletions per transaction of a collection.
const CHUNK: usize = 300;

/// The names that an attachment's rules and chains bear.
struct Names {
    port_chain: String,
    mac_chain: String,
    comment: String,
}

impl Names {
    fn new(id: &str) -> Result<Self, FirewallError> {
        if id.is_empty() || id.len() > ID_MAX || id.contains('\0') {
            return Err(FirewallError::new(
                "name MAC check rules after",
                id,
                format!("container ID and interface name must have 1 to {ID_MAX} bytes together, none of them zero"),
            ));
        }
        Ok(Self {
            port_chain: format!("{CHAIN_PREFIX}{id}"),
            mac_chain: format!("{CHAIN_PREFIX}{id}{MAC_SUFFIX}"),
            comment: format!("{COMMENT_PREFIX}{id}"),
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
    let names = Names::new(id)?;
    let wanted = Wanted::new(&names, host_ifname, mac)?;
    nft.change(|nft, batch| {
        let exists = nft.table(TABLE)?.is_some();
        if !exists {
            batch.add_table(TABLE, None);
        }
        if !exists || nft.chain(TABLE, PREROUTING)?.is_none() {
            let base = BaseChain { kind: "filter", hook: InetHookNumber::PreRouting, priority: -300 };
            batch.add_chain(TABLE, PREROUTING, Some(base), None);
        }
        let mut stale = false;
        for (chain, rules) in [(&names.port_chain, &wanted.port), (&names.mac_chain, &wanted.mac)] {
            if !exists || nft.chain(TABLE, chain)?.is_none() {
                batch.add_chain(TABLE, chain, None, None);
                stale = true;
            } else if !complete(&names, &nft.rules(TABLE, chain)?, rules) {
                stale = true;
            }
        }
        // Refilled together: the rules of one refer to the other.
        if stale {
            for (chain, rules) in [(&names.port_chain, &wanted.port), (&names.mac_chain, &wanted.mac)] {
                batch.flush_chain(TABLE, chain);
                for rule in rules {
                    batch.append_rule(TABLE, chain, rule, Some(names.comment.as_bytes()));
                }
            }
        }
        ensure_entry(nft, batch, &names, &wanted.entry)
    })
}

/// Exactly one rule in `PREROUTING` is to bear the attachment's comment: the wanted one.
fn ensure_entry(nft: &mut Nft, batch: &mut Batch, names: &Names, entry: &[Expression]) -> Result<(), FirewallError> {
    let mut found = false;
    for rule in nft.rules(TABLE, PREROUTING)? {
        if !names.marks(&rule) {
            continue;
        }
        if !found && rule.is(entry) {
            found = true;
        } else {
            batch.delete_rule(TABLE, PREROUTING, rule.handle);
        }
    }
    if !found {
        batch.append_rule(TABLE, PREROUTING, entry, Some(names.comment.as_bytes()));
    }
    Ok(())
}

/// Whether all that [`ensure`] makes is there, and effective: an attachment's own chains hold nothing else.
///
/// # Errors
/// A name is too long, the kernel refuses to show it, or the deadline passes.
pub fn check(nft: &mut Nft, id: &str, host_ifname: &str, mac: [u8; 6]) -> Result<bool, FirewallError> {
    is_complete(id, host_ifname, mac, |chain| nft.rules(TABLE, chain))
}

/// As [`check`], of the rules that each chain has by `rules`.
pub(crate) fn is_complete<R: AsRef<[Rule]>>(
    id: &str,
    host_ifname: &str,
    mac: [u8; 6],
    mut rules: impl FnMut(&str) -> Result<R, FirewallError>,
) -> Result<bool, FirewallError> {
    let names = Names::new(id)?;
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

/// Removes the attachment's rules and chains in one transaction, and returns whether there was anything.
///
/// # Errors
/// A name is too long, a rule that is not ours refers to a chain (`EBUSY`), the kernel refuses, or the deadline passes.
/// That nothing is there is no error.
pub fn remove(nft: &mut Nft, id: &str) -> Result<bool, FirewallError> {
    let names = Names::new(id)?;
    nft.change(|nft, batch| {
        for rule in nft.rules(TABLE, PREROUTING)? {
            if names.marks(&rule) {
                batch.delete_rule(TABLE, PREROUTING, rule.handle);
            }
        }
        delete_chains(batch, &names.chains(nft)?);
        Ok(!batch.is_empty())
    })
}

/// Removes the rules and chains of all attachments of the node, whatever their network, except those whose ID is in
/// `valid`, and returns the IDs of the removed ones. (Nothing in these rules names the network.)
///
/// # Errors
/// As [`remove`].
pub fn retain(nft: &mut Nft, valid: &[&str]) -> Result<Vec<String>, FirewallError> {
    let mut kept_chains = Vec::new();
    let mut kept_comments = Vec::new();
    for id in valid {
        let names = Names::new(id)?;
        kept_chains.extend([names.port_chain, names.mac_chain]);
        kept_comments.push(names.comment.into_bytes());
    }
    let mut removed: Vec<String> = Vec::new();
    loop {
        let ids = nft.change(|nft, batch| {
            let mut ids = Vec::new();
            let mut changes = 0;
            for rule in nft.rules(TABLE, PREROUTING)? {
                let Some(id) = id_of(&rule) else { continue };
                let kept = kept_comments.iter().any(|comment| rule.comment.as_ref() == Some(comment));
                if !kept && changes < CHUNK {
                    batch.delete_rule(TABLE, PREROUTING, rule.handle);
                    ids.push(String::from_utf8_lossy(id).into_owned());
                    changes += 1;
                }
            }
            // With rules left to delete, their chains are still in use.
            if changes < CHUNK {
                let mut chains = nft.chain_names(TABLE)?;
                chains.retain(|chain| chain.starts_with(CHAIN_PREFIX) && !kept_chains.contains(chain));
                chains.sort_unstable();
                chains.truncate(CHUNK);
                changes = chains.len();
                let chains: Vec<&str> = chains.iter().map(String::as_str).collect();
                delete_chains(batch, &chains);
                ids.extend(chains.iter().filter_map(|chain| chain_id(chain)));
            }
            Ok((ids, changes == CHUNK))
        });
        let (ids, more) = ids?;
        for id in ids {
            if !removed.contains(&id) {
                removed.push(id);
            }
        }
        if !more {
            return Ok(removed);
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
    let names = Names::new(id)?;
    nft.change(|nft, batch| {
        let rules = nft.rules(TABLE, PREROUTING)?;
        let own: Vec<&Rule> = rules.iter().filter(|rule| names.marks(rule)).collect();
        // One that can't be read may be about any port.
        let unused = |rule: &&Rule| Port::read(rule).is_some_and(|port| !exists(&port.ifname));
        if own.is_empty() || !own.iter().all(unused) {
            return Ok(false);
        }
        for rule in own {
            batch.delete_rule(TABLE, PREROUTING, rule.handle);
        }
        delete_chains(batch, &names.chains(nft)?);
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
    if !id.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        return Ok(Vec::new());
    }
    let mut commands = Vec::new();
    for rule in nft.rules(TABLE, PREROUTING)?.iter().filter(|rule| names.marks(rule)) {
        commands.push(format!("nft delete rule {TABLE} {PREROUTING} handle {}", rule.handle));
    }
    let chains = names.chains(nft)?;
    for command in ["flush", "delete"] {
        commands.extend(chains.iter().map(|chain| format!("nft {command} chain {TABLE} {chain}")));
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

/// Rules first: a chain that another one jumps to can't be deleted.
fn delete_chains(batch: &mut Batch, chains: &[&str]) {
    for chain in chains {
        batch.flush_chain(TABLE, chain);
    }
    for chain in chains {
        batch.delete_chain(TABLE, chain);
    }
}
