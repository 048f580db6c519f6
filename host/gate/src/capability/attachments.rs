//! `attachments`: what this plugin has left, for GC.

use crate::capability::masquerade::{firewall, means, unless_absent};
use crate::collect;
use crate::gate::Gate;
use postern_firewall::{FirewallError, iptables, masquerade};
use postern_types::{Capability, OpError, Reply, ops};

/// Carries out one operation that policy allows.
///
/// # Errors
/// What the guest gets to see.
pub fn execute(gate: &mut Gate<'_>, operation: &ops::Attachments) -> Result<Reply, OpError> {
    match operation {
        ops::Attachments::Collect => collect(gate),
    }
}

/// `attachments.collect`.
fn collect(gate: &mut Gate<'_>) -> Result<Reply, OpError> {
    let Some(valid) = gate.session.request.conf.still_valid() else { return Ok(Reply::Removed(0)) };
    let valid: Vec<(&str, &str)> =
        valid.into_iter().map(|valid| (valid.container_id.as_str(), valid.ifname.as_str())).collect();
    let mut removed = collect::stale_sections(gate.session)?;
    // Rules that a native plugin made, or that lost their record, carry the network in their comment.
    if gate.front.granted().has(Capability::Masquerade) {
        let session = &*gate.session;
        let network = &session.request.conf.name;
        let valid: Vec<(String, String)> =
            valid.iter().map(|(id, ifname)| ((*id).to_owned(), (*ifname).to_owned())).collect();
        let busy =
            || collect::busy(session).map_err(|error| FirewallError::new("look at", "records", error.to_string()));
        removed += unless_absent(session, |nft| masquerade::nft_retain(nft, network, &valid, busy))?.len();
        // A program is started only if there is something of others than the valid ones.
        let in_nftables = unless_absent(session, |nft| iptables::others_may_exist(nft, network, &valid))?;
        if in_nftables || iptables::has_legacy_nat() {
            removed += iptables::retain(network, &valid, busy, means(session)).map_err(firewall)?.len();
        }
    }
    Ok(Reply::Removed(u32::try_from(removed).unwrap_or(u32::MAX)))
}
