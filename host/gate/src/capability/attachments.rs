//! `attachments`: what this plugin has left, for GC.

use crate::capability::masquerade::{firewall, means};
use crate::collect;
use crate::gate::Gate;
use postern_firewall::{FirewallError, iptables, masquerade};
use postern_types::{OpError, Reply};

/// `attachments.collect`.
pub fn collect(gate: &mut Gate<'_>) -> Result<Reply, OpError> {
    let Some(valid) = gate.session.request.conf.still_valid() else { return Ok(Reply::Removed(0)) };
    let valid: Vec<(&str, &str)> =
        valid.into_iter().map(|valid| (valid.container_id.as_str(), valid.ifname.as_str())).collect();
    let mut removed = collect::stale_sections(gate.session, &valid)?;
    // Rules that a native plugin made, or that lost their record, carry the network in their comment.
    if gate.granted().has("masquerade") {
        let session = &*gate.session;
        let network = &session.request.conf.name;
        let kept = || {
            let mut kept: Vec<(String, String)> =
                valid.iter().map(|(id, ifname)| ((*id).to_owned(), (*ifname).to_owned())).collect();
            let busy =
                collect::busy(session).map_err(|error| FirewallError::new("look at", "records", error.to_string()));
            kept.extend(busy?);
            Ok(kept)
        };
        let rules = masquerade::nft_retain(&mut *session.nft()?, network, kept);
        removed += rules.map_err(firewall)?.len();
        if iptables::any_may_exist(&mut *session.nft()?).map_err(firewall)? {
            removed += iptables::retain(network, kept, means(session)).map_err(firewall)?.len();
        }
    }
    Ok(Reply::Removed(u32::try_from(removed).unwrap_or(u32::MAX)))
}
