//! `attachments`: what this plugin has left, for GC.

use crate::capability;
use crate::collect;
use crate::gate::Gate;
use postern_types::{OpError, Reply};

/// `attachments.collect`.
pub fn collect(gate: &mut Gate<'_>) -> Result<Reply, OpError> {
    let Some(valid) = gate.session.request.conf.still_valid() else { return Ok(Reply::Removed(0)) };
    let valid: Vec<(String, String)> =
        valid.into_iter().map(|valid| (valid.container_id.clone(), valid.ifname.clone())).collect();
    let mut removed = collect::stale_sections(gate.session)?;
    for (name, unrecorded) in capability::UNRECORDED {
        if gate.granted().has(name) {
            removed += unrecorded(gate.session, &valid)?;
        }
    }
    Ok(Reply::Removed(u32::try_from(removed).unwrap_or(u32::MAX)))
}
