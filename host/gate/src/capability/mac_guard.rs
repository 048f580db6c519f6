//! `mac-guard`: frames with a foreign source address end at the host's end of the pair.

use crate::capability::masquerade::firewall;
use crate::effect::Effect;
use crate::gate::Gate;
use crate::session::Session;
use postern_firewall::macguard;
use postern_types::{ErrorCode, Handle, Mac, OpError, Reply};

/// The native plugin's identifier.
fn id(session: &Session) -> String {
    format!("{}-{}", session.request.container_id, session.request.ifname)
}

/// `mac-guard.ensure`.
pub fn ensure(gate: &mut Gate<'_>, host: Handle, mac: Mac) -> Result<Reply, OpError> {
    let (_, name) = gate.host_end(host)?;
    let id = id(gate.session);
    // The address that the pair was made with: another one would let somebody else's frames pass.
    let made = gate.session.container_mac;
    if made.is_some_and(|made| made != mac) {
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
    if macguard::check(&mut *gate.session.nft()?, &id(gate.session), &name, mac.0).map_err(firewall)? {
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

/// Removes the rules.
pub fn revert(session: &Session) -> Result<(), OpError> {
    macguard::remove(&mut *session.nft()?, &id(session)).map_err(firewall)?;
    Ok(())
}
