//! `attachments`: what this plugin has left, for GC.

use crate::collect;
use crate::gate::Gate;
use crate::session::{kernel, state};
use postern_firewall::masquerade;
use postern_types::{OpError, Reply};

/// `attachments.collect`.
pub fn collect(gate: &mut Gate<'_>) -> Result<Reply, OpError> {
    let Some(valid) = gate.session.request.conf.still_valid() else { return Ok(Reply::Removed(0)) };
    let valid: Vec<(&str, &str)> =
        valid.into_iter().map(|valid| (valid.container_id.as_str(), valid.ifname.as_str())).collect();
    let network = &gate.session.request.conf.name;
    let here = gate.session.host()?.cookie().map_err(kernel)?;
    let mut removed = 0;
    for summary in postern_state::list(&gate.session.state).map_err(state)? {
        let (Some(key), Some(header)) = (&summary.key, &summary.header) else { continue };
        let stale = !valid.contains(&(header.container_id.as_str(), header.ifname.as_str()));
        if header.network == *network && header.host_netns_cookie == here && stale {
            removed += collect::section(gate.session, key, Some(gate.plugin))?;
        }
    }
    // Rules that a native plugin made, or that lost their record, carry the network in their comment.
    if gate.granted().has("masquerade") {
        let rules = masquerade::nft_retain(&mut *gate.session.nft()?, network, &valid);
        removed += rules.map_err(super::masquerade::firewall)?.len();
    }
    Ok(Reply::Removed(u32::try_from(removed).unwrap_or(u32::MAX)))
}
