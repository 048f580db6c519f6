//! `mac-guard`: frames with a foreign source address end at the host's end of the pair.
//!
//! The rules have the native plugins' name of the attachment, unless another's port has that name already: then they have
//! a name of their own, which the record tells. Who comes first has the native name.

use crate::capability::masquerade::{firewall, unless_absent};
use crate::capability::veth;
use crate::effect::Effect;
use crate::gate::Gate;
use crate::session::Session;
use postern_cni::Verb;
use postern_firewall::macguard::{self, native_id, own_id};
use postern_state::Header;
use postern_types::{ErrorCode, Handle, Mac, OpError, Reply};
use std::cell::OnceCell;

/// What the rules of an attachment can be named after.
pub fn ids(header: &Header) -> [String; 2] {
    let Header { network, container_id, ifname, .. } = header;
    [native_id(container_id, ifname), own_id(network, container_id, ifname)]
}

fn native(session: &Session) -> String {
    native_id(&session.request.container_id, &session.request.ifname)
}

/// `mac-guard.ensure`.
pub fn ensure(gate: &mut Gate<'_>, host: Handle, mac: Mac) -> Result<Reply, OpError> {
    let (index, name) = gate.host_end(host)?;
    veth::must_live(gate.session, index, &name)?;
    // The address that the pair was made with: another one would let somebody else's frames pass.
    if gate.session.container_mac != Some(mac) {
        let message = format!("{mac} is not the address of the container's end of \"{name}\"");
        return Err(OpError::new(ErrorCode::InvalidArgument, mac.to_string(), message));
    }
    let native = native(gate.session);
    // What can't be made must not be written down: nobody could remove it.
    macguard::validate(&native).map_err(firewall)?;
    let guard = |id: Option<String>| Effect::MacGuard { id, host: Some(name.clone()), mac: Some(mac) };
    let request = &gate.session.request;
    let own = own_id(&request.conf.name, &request.container_id, &request.ifname);
    if !gate.session.has(&guard(Some(own.clone()))) {
        gate.session.intend(guard(None))?;
        if claim(gate.session, &native, &name, mac)? {
            return Ok(Reply::Done);
        }
        gate.session.intend(guard(Some(own.clone())))?;
        gate.session.gone(|effect| *effect == guard(None));
    }
    if claim(gate.session, &own, &name, mac)? {
        return Ok(Reply::Done);
    }
    let message = format!("the rules named {own} guard a port that is not \"{name}\"");
    Err(OpError::new(ErrorCode::Exists, own, message).hint("`postern doctor` shows whose they are"))
}

/// Makes the rules, unless their name is that of rules for another port which is there.
fn claim(session: &Session, id: &str, host: &str, mac: Mac) -> Result<bool, OpError> {
    let netlink = session.host()?;
    // What can't be told is there.
    let is_there = |port: &str| !matches!(netlink.link_by_name(port), Ok(None));
    macguard::claim(&mut *session.nft()?, id, host, mac.0, is_there).map_err(firewall)
}

/// `mac-guard.check`.
pub fn check(gate: &Gate<'_>, host: Handle, mac: Mac) -> Result<Reply, OpError> {
    let (_, name) = gate.seen_end(host)?;
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
    let id = recorded(session).into_iter().find_map(|(id, of)| id.filter(|_| of.as_deref() == Some(host)));
    let id = id.unwrap_or_else(|| native(session));
    macguard::check(&mut *session.nft()?, &id, host, mac.0).map_err(firewall)
}

/// `mac-guard.remove`.
pub fn remove(gate: &mut Gate<'_>) -> Result<Reply, OpError> {
    if gate.session.request.verb == Verb::Add {
        gate.session.only_of_this_run(|effect| matches!(effect, Effect::MacGuard { .. }), "spoofing protection")?;
    }
    let mut guards = recorded(gate.session);
    if guards.is_empty() || gate.session.is_replaced() {
        guards.push((None, None));
    }
    for (id, host) in guards {
        revert(gate.session, id.as_deref(), host.as_deref())?;
    }
    gate.session.gone(|effect| matches!(effect, Effect::MacGuard { .. }));
    Ok(Reply::Done)
}

/// The guards that the record lists: what each is named after, and its host end.
fn recorded(session: &Session) -> Vec<(Option<String>, Option<String>)> {
    let effects = session.record().map(|record| record.effects(None)).unwrap_or_default();
    let guards = effects.into_iter().filter_map(|noted| match noted.effect {
        Effect::MacGuard { id, host, .. } => Some((id, host)),
        _ => None,
    });
    guards.collect()
}

/// Removes the rules, but for those of other attachments: their names can be the same. A name that no rules can have has
/// none.
///
/// # Errors
/// The kernel refuses.
pub fn revert(session: &Session, id: Option<&str>, host: Option<&str>) -> Result<(), OpError> {
    let id = id.map_or_else(|| native(session), str::to_owned);
    let own: Vec<String> =
        host.map(str::to_owned).into_iter().chain(veth::recorded(session).into_iter().map(|(host, _)| host)).collect();
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
    unless_absent(session, |nft| macguard::remove_unless(nft, &id, is_anothers)).map(drop)
}

/// The host ends that the records of other attachments list; `None` if that can't be told.
fn host_ends_of_others(session: &Session) -> Option<Vec<String>> {
    let own = session.key().ok()?;
    let summaries = postern_state::list(&session.state).ok()?;
    let others = summaries.into_iter().filter(|summary| summary.key.as_ref() != Some(&own));
    let effects = others.flat_map(|summary| summary.effects);
    let ends = effects.filter_map(|noted| match serde_json::from_value(noted.effect) {
        Ok(Effect::Veth { host, .. }) => Some(host),
        _ => None,
    });
    Some(ends.collect())
}
