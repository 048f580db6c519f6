//! `mac-guard`: frames with another source address are dropped at the attachment's host end.
//!
//! The rules have the native plugins' name for the attachment, if it is free. If the rules of another port already have
//! that name, these rules get their own name, which the record lists.

use crate::capability::facts::{Facts, Needed};
use crate::capability::veth;
use crate::effect::mac_guard::{claim, is_whole, name_is_taken, native, recorded};
use crate::effect::{Effect, MacGuard};
use crate::errors::{firewall_error, kernel_error, link_gone};
use crate::gate::Gate;
use crate::session::Session;
use postern_cni::Verb;
use postern_firewall::macguard::{self, own_id};
use postern_types::{ErrorCode, Handle, Kind, Mac, OpError, Reply, ops};

/// The facts about it that the host needs beside its operations.
pub const FACTS: Facts = Facts { needed: Needed::Always, keeps: |_, _| None, unrecorded: None };

/// Carries out one operation that policy allows.
///
/// # Errors
/// The error that the guest gets.
pub fn execute(gate: &mut Gate<'_>, operation: &ops::MacGuard) -> Result<Reply, OpError> {
    match operation {
        ops::MacGuard::Ensure { host, mac } => ensure(gate, *host, *mac),
        ops::MacGuard::Check { host, mac } => check(gate, *host, *mac),
        ops::MacGuard::Remove => remove(gate),
    }
}

/// `mac-guard.ensure`.
fn ensure(gate: &mut Gate<'_>, host: Handle, mac: Mac) -> Result<Reply, OpError> {
    let (index, name) = gate.front.port(host)?;
    if gate.front.object(host)?.kind() == Kind::Port {
        must_be_takeable(gate.session, index, &name)?;
        // If nothing tells the address behind such a link, the plugin chooses it once, as it does for a pair.
        gate.session.container_mac.get_or_insert(mac);
    } else {
        veth::must_live(gate.session, index, &name)?;
    }
    // Only the address that the pair was made with is allowed. Another one would let frames of another container pass.
    if gate.session.container_mac != Some(mac) {
        let message = format!("{mac} is not the address of the container's end of \"{name}\"");
        return Err(OpError::new(ErrorCode::InvalidArgument, mac.to_string(), message));
    }
    let native = native(gate.session);
    // An effect that can't be made must not be recorded: it could never be removed.
    macguard::validate(&native).map_err(firewall_error)?;
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
    Err(name_is_taken(&own, &name))
}

/// Checks that a link of an earlier plugin has joined for this attachment, or can join.
fn must_be_takeable(session: &Session, index: u32, name: &str) -> Result<(), OpError> {
    let link = session.host()?.link_by_index(index).map_err(kernel_error)?.ok_or_else(|| link_gone(name))?;
    match session.ports().first() {
        Some(port) if port.index == index => Ok(()),
        _ => session.must_be_free(&link),
    }
}

/// `mac-guard.check`.
fn check(gate: &Gate<'_>, host: Handle, mac: Mac) -> Result<Reply, OpError> {
    let (_, name) = gate.front.seen_end(host)?;
    if is_whole(gate.session, &name, mac)? {
        return Ok(Reply::Done);
    }
    Err(OpError::new(ErrorCode::Mismatch, name, "the spoofing protection of this attachment is not all there"))
}

/// `mac-guard.remove`.
fn remove(gate: &mut Gate<'_>) -> Result<Reply, OpError> {
    if gate.session.request.verb == Verb::Add {
        gate.session.only_of_this_run(|effect| MacGuard::of(effect).is_some(), "spoofing protection")?;
    }
    let mut guards: Vec<MacGuard> = recorded(gate.session).into_iter().map(|(guard, _)| guard).collect();
    if guards.is_empty() || gate.session.is_replaced() {
        guards.push(MacGuard::default());
    }
    for guard in guards {
        guard.revert(gate.session)?;
    }
    gate.session.gone(|effect| MacGuard::of(effect).is_some());
    Ok(Reply::Done)
}
