//! `mac-guard`: frames with a foreign source address end at the host's end of the pair.

use crate::capability::masquerade::firewall;
use crate::effect::Effect;
use crate::gate::Gate;
use crate::session::{Session, kernel};
use postern_firewall::macguard;
use postern_types::{ErrorCode, Handle, Mac, OpError, Reply};

/// The native plugin's identifier.
pub fn id(container_id: &str, ifname: &str) -> String {
    format!("{container_id}-{ifname}")
}

fn own_id(session: &Session) -> String {
    id(&session.request.container_id, &session.request.ifname)
}

/// `mac-guard.ensure`.
pub fn ensure(gate: &mut Gate<'_>, host: Handle, mac: Mac) -> Result<Reply, OpError> {
    let (_, name) = gate.host_end(host)?;
    let id = own_id(gate.session);
    // The address that the pair was made with, or has if it was made before: another one would let somebody else's frames
    // pass.
    let made = match gate.session.container_mac {
        Some(made) => Some(made),
        None => {
            let container = gate.session.container_required()?.netlink().map_err(kernel)?;
            let own = container.link_by_name(&gate.session.request.ifname).map_err(kernel)?;
            own.and_then(|own| own.mac).map(Mac)
        }
    };
    if made.is_none_or(|made| made != mac) {
        let message = format!("{mac} is not the address of the container's end of \"{name}\"");
        return Err(OpError::new(ErrorCode::InvalidArgument, mac.to_string(), message));
    }
    gate.session.intend(Effect::MacGuard)?;
    macguard::ensure(&mut *gate.session.nft()?, &id, &name, mac.0).map_err(firewall)?;
    Ok(Reply::Done)
}

/// `mac-guard.check`.
pub fn check(gate: &Gate<'_>, host: Handle, mac: Mac) -> Result<Reply, OpError> {
    let (_, name) = gate.seen_end(host)?;
    if macguard::check(&mut *gate.session.nft()?, &own_id(gate.session), &name, mac.0).map_err(firewall)? {
        return Ok(Reply::Done);
    }
    Err(OpError::new(ErrorCode::Mismatch, name, "the spoofing protection of this attachment is not all there"))
}

/// `mac-guard.remove`.
pub fn remove(gate: &mut Gate<'_>) -> Result<Reply, OpError> {
    revert(gate.session)?;
    gate.session.gone(|effect| *effect == Effect::MacGuard);
    Ok(Reply::Done)
}

/// Removes the rules, unless they are another attachment's by now: their names tell of container and interface, and not of
/// the network.
pub fn revert(session: &Session) -> Result<(), OpError> {
    let id = own_id(session);
    if !is_anothers(session, &id)? {
        macguard::remove(&mut *session.nft()?, &id).map_err(firewall)?;
    }
    Ok(())
}

/// Whether the rules guard a port that is there, and is not the one that the record lists.
fn is_anothers(session: &Session, id: &str) -> Result<bool, OpError> {
    let effects = session.record().map(|record| record.effects(None)).unwrap_or_default();
    let pairs = effects.into_iter().filter_map(|noted| match noted.effect {
        Effect::Veth { host, .. } => Some(host),
        _ => None,
    });
    let pairs: Vec<String> = pairs.collect();
    // Without a pair in the record it is a native plugin's attachment, and its rules go by their names alone.
    if pairs.is_empty() {
        return Ok(false);
    }
    let ports = macguard::list(&mut *session.nft()?).map_err(firewall)?;
    for port in ports.iter().filter(|port| port.id == id && !pairs.contains(&port.ifname)) {
        if session.host()?.link_by_name(&port.ifname).map_err(kernel)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
