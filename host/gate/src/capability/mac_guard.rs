//! `mac-guard`: frames with a foreign source address end at the host's end of the pair.
//!
//! The rules have the native plugins' name of the attachment, unless another's port has that name already: then they have
//! a name of their own, which the record tells. Who comes first has the native name.

use crate::capability::about;
use crate::capability::masquerade::{firewall, unless_absent};
use crate::capability::veth;
use crate::effect::{Effect, MacGuard, Veth};
use crate::gate::Gate;
use crate::session::{Session, kernel};
use postern_cni::Verb;
use postern_firewall::macguard::{self, native_id, own_id};
use postern_kernel::Link;
use postern_state::Header;
use postern_types::{ErrorCode, Handle, Mac, OpError, Reply, ops};
use std::cell::OnceCell;
use std::path::Path;

/// What the rules of an attachment can be named after.
pub fn ids(header: &Header) -> [String; 2] {
    let Header { network, container_id, ifname, .. } = header;
    [native_id(container_id, ifname), own_id(network, container_id, ifname)]
}

fn native(session: &Session) -> String {
    native_id(&session.request.container_id, &session.request.ifname)
}

/// Carries out one operation that policy allows.
///
/// # Errors
/// What the guest gets to see.
pub fn execute(gate: &mut Gate<'_>, operation: &ops::MacGuard) -> Result<Reply, OpError> {
    match operation {
        ops::MacGuard::Ensure { host, mac } => ensure(gate, *host, *mac),
        ops::MacGuard::Check { host, mac } => check(gate, *host, *mac),
        ops::MacGuard::Remove => remove(gate),
    }
}

/// `mac-guard.ensure`.
fn ensure(gate: &mut Gate<'_>, host: Handle, mac: Mac) -> Result<Reply, OpError> {
    let (index, name) = gate.front.host_end(host)?;
    veth::must_live(gate.session, index, &name)?;
    // The address that the pair was made with: another one would let somebody else's frames pass.
    if gate.session.container_mac != Some(mac) {
        let message = format!("{mac} is not the address of the container's end of \"{name}\"");
        return Err(OpError::new(ErrorCode::InvalidArgument, mac.to_string(), message));
    }
    let native = native(gate.session);
    // What can't be made must not be written down: nobody could remove it.
    macguard::validate(&native).map_err(firewall)?;
    let guard = |id: Option<String>| Effect::from(MacGuard { id, host: Some(name.clone()), mac: Some(mac) });
    let request = &gate.session.request;
    let own = own_id(&request.conf.name, &request.container_id, &request.ifname);
    if !gate.session.has(&guard(Some(own.clone()))) {
        gate.session.intend(guard(None))?;
        if let Some(handles) = claim(gate.session, &native, &name, mac)? {
            gate.session.known_by(&guard(None), &handles);
            return Ok(Reply::Done);
        }
        gate.session.intend(guard(Some(own.clone())))?;
        gate.session.gone(|effect| *effect == guard(None));
    }
    if let Some(handles) = claim(gate.session, &own, &name, mac)? {
        gate.session.known_by(&guard(Some(own)), &handles);
        return Ok(Reply::Done);
    }
    let message = format!("the rules named {own} guard a port that is not \"{name}\"");
    Err(OpError::new(ErrorCode::Exists, own, message).hint("`postern doctor` shows whose they are"))
}

/// Makes the rules, unless their name is that of rules for another port which is there. The handles are of what was made.
fn claim(session: &Session, id: &str, host: &str, mac: Mac) -> Result<Option<Vec<u64>>, OpError> {
    let netlink = session.host()?;
    // What can't be told is there.
    let is_there = |port: &str| !matches!(netlink.link_by_name(port), Ok(None));
    macguard::claim(&mut *session.nft()?, id, host, mac.0, is_there).map_err(firewall)
}

/// `mac-guard.check`.
fn check(gate: &Gate<'_>, host: Handle, mac: Mac) -> Result<Reply, OpError> {
    let (_, name) = gate.front.seen_end(host)?;
    if is_whole(gate.session, &name, mac)? {
        return Ok(Reply::Done);
    }
    Err(OpError::new(ErrorCode::Mismatch, name, "the spoofing protection of this attachment is not all there"))
}

/// Whether all rules are there by which this host end sends under this address only, by the name that the record tells.
///
/// # Errors
/// The kernel refuses to show them.
pub fn is_whole(session: &Session, host: &str, mac: Mac) -> Result<bool, OpError> {
    let guard = recorded(session).into_iter().find(|guard| guard.host.as_deref() == Some(host)).unwrap_or_default();
    let id = guard.id.unwrap_or_else(|| native(session));
    macguard::check_known(&mut *session.nft()?, &id, host, mac.0, &guard.handles).map_err(firewall)
}

/// `mac-guard.remove`.
fn remove(gate: &mut Gate<'_>) -> Result<Reply, OpError> {
    if gate.session.request.verb == Verb::Add {
        gate.session.only_of_this_run(|effect| MacGuard::of(effect).is_some(), "spoofing protection")?;
    }
    let mut guards = recorded(gate.session);
    if guards.is_empty() || gate.session.is_replaced() {
        guards.push(Recorded::default());
    }
    for Recorded { id, host, .. } in guards {
        revert(gate.session, id.as_deref(), host.as_deref())?;
    }
    gate.session.gone(|effect| MacGuard::of(effect).is_some());
    Ok(Reply::Done)
}

/// A guard that the record lists.
#[derive(Default)]
struct Recorded {
    id: Option<String>,
    host: Option<String>,
    /// By which the kernel knows it.
    handles: Vec<u64>,
}

fn recorded(session: &Session) -> Vec<Recorded> {
    let effects = session.record().map(|record| record.effects(None)).unwrap_or_default();
    let guards = effects.into_iter().filter_map(|noted| {
        let MacGuard { id, host, .. } = MacGuard::of(&noted.effect)?.clone();
        Some(Recorded { id, host, handles: noted.handles })
    });
    guards.collect()
}

/// Removes the rules, but for those of other attachments: their names can be the same. A name that no rules can have has
/// none. The guarded port is set down before: nothing that the container sends passes it without its guard.
///
/// # Errors
/// The kernel refuses.
pub fn revert(session: &Session, id: Option<&str>, host: Option<&str>) -> Result<(), OpError> {
    let noted = recorded(session).into_iter().find(|guard| (guard.id.as_deref(), guard.host.as_deref()) == (id, host));
    let handles = noted.map(|guard| guard.handles).unwrap_or_default();
    let id = id.map_or_else(|| native(session), str::to_owned);
    take_down(session, &id, host)?;
    let own: Vec<String> =
        host.map(str::to_owned).into_iter().chain(veth::recorded(session).into_iter().map(|pair| pair.host)).collect();
    let netlink = session.host()?;
    let is_there = |port: &str| !matches!(netlink.link_by_name(port), Ok(None));
    // Without a pair of its own it is a native plugin's attachment, or one whose record is gone: its rules go by their
    // names, but for what another's record claims.
    let claimed = OnceCell::new();
    let is_claimed = |port: &str| match claimed.get_or_init(|| host_ends_of_others(session)) {
        Some(ports) => ports.iter().any(|claimed| claimed == port),
        None => true,
    };
    // So it is if a native plugin has made the attachment again: no record tells of that.
    let is_anothers = |port: &str| match own.is_empty() || session.is_replaced() {
        true => is_there(port) && is_claimed(port),
        false => !own.iter().any(|own| own == port) && is_there(port),
    };
    unless_absent(session, |nft| macguard::remove_unless(nft, &id, &handles, is_anothers)).map(drop)
}

/// Sets the guarded port down, where it is up and in a bridge: `host`, or else all that the record lists, or else the one
/// that the rules name.
fn take_down(session: &Session, id: &str, host: Option<&str>) -> Result<(), OpError> {
    let netlink = session.host()?;
    let pairs = veth::recorded(session);
    let mut ports = Vec::new();
    for pair in pairs.iter().filter(|pair| host.is_none_or(|host| host == pair.host)) {
        ports.extend(pair.end(netlink)?);
    }
    if pairs.is_empty() {
        ports.extend(unrecorded(session, id)?);
    }
    for port in ports.iter().filter(|port| port.up && port.master.is_some()) {
        netlink.set_down(port.index).map_err(about(&port.name))?;
    }
    Ok(())
}

/// The ports that the rules name, of an attachment without a recorded pair: those whose other end is in the container's
/// namespace, and that no other attachment's record lists.
fn unrecorded(session: &Session, id: &str) -> Result<Vec<Link>, OpError> {
    // Without its namespace there is no pair any more.
    let Ok(namespace) = session.namespace() else { return Ok(Vec::new()) };
    let netlink = session.host()?;
    let Some(number) = netlink.namespace_number(namespace.fd()).map_err(kernel)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for port in unless_absent(session, macguard::list)?.iter().filter(|port| port.id == id) {
        let link = netlink.link_by_name(&port.ifname).map_err(kernel)?;
        let link = link.filter(|link| link.kind == "veth" && link.peer_netnsid == Some(number));
        let is_anothers = |name: &String| host_ends_of_others(session).is_none_or(|ends| ends.contains(name));
        found.extend(link.filter(|link| !is_anothers(&link.name)));
    }
    Ok(found)
}

/// The host ends that the records of other attachments list; `None` if that can't be told.
fn host_ends_of_others(session: &Session) -> Option<Vec<String>> {
    let own = session.key().ok()?;
    let summaries = postern_state::list(&session.state).ok()?;
    // What was set aside because it could not be read is this attachment's still, whatever it says.
    let is_own = |path: &Path| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| own.is_named(name));
    let others = summaries.into_iter().filter(|summary| !is_own(&summary.path));
    let effects = others.flat_map(|summary| summary.effects);
    let effects = effects.filter_map(|noted| serde_json::from_value::<Effect>(noted.effect).ok());
    Some(effects.filter_map(|effect| Veth::of(&effect).map(|pair| pair.host.clone())).collect())
}
