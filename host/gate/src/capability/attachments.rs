//! `attachments`: what this plugin has left, for GC.

use crate::collect;
use crate::gate::Gate;
use postern_firewall::masquerade;
use postern_types::{OpError, Reply};

/// `attachments.collect`.
pub fn collect(gate: &mut Gate<'_>) -> Result<Reply, OpError> {
    let Some(valid) = gate.session.request.conf.still_valid() else { return Ok(Reply::Removed(0)) };
    let valid: Vec<(&str, &str)> =
        valid.into_iter().map(|valid| (valid.container_id.as_str(), valid.ifname.as_str())).collect();
    let mut removed = collect::stale_sections(gate.session, &valid)?;
    // Rules that a native plugin made, or that lost their record, carry the network in their comment.
    if gate.granted().has("masquerade") {
        let network = &gate.session.request.conf.name;
        let rules = masquerade::nft_retain(&mut *gate.session.nft()?, network, &valid);
        removed += rules.map_err(super::masquerade::firewall)?.len();
    }
    Ok(Reply::Removed(u32::try_from(removed).unwrap_or(u32::MAX)))
}
