//! `port-mappings`: the ports of the node that may lead to a container, and the packet filters that may have the rules.

use super::prelude::*;
use crate::port;
use postern_types::Forward;

/// The keys of `[grant.port-mappings]`.
pub const KEYS: &[Key] =
    &[required("ports", ValueKind::Ports, "1-65535"), required("backends", ValueKind::Backend, "nftables")];

/// The largest number of forwards whose ports a policy line lists.
const MOST: usize = 16;

impl Decide for ops::PortMappings {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Ensure { forwards, .. } => {
                let granted: Vec<_> = grant.texts("ports").filter_map(|text| port::ports(&text)).collect();
                let is_granted = |of: &Forward| port::covers(&granted, of.host_port, of.last_host_port());
                let Some(refused) = forwards.iter().find(|forward| !is_granted(forward)) else {
                    return Ok("port-mappings.ports");
                };
                let ports = ports(refused);
                let change = vec![line::text("ports", &*ports)];
                Err(input.deny(Capability::PortMappings, &ports, &format!(" on the node's port {ports}"), change))
            }
            // The ports matter only when rules are made.
            Self::Check { .. } | Self::Remove => Ok(grant.name),
        }
    }

    fn objects(&self, _: &RuleInput<'_>) -> Vec<Change> {
        match self {
            Self::Ensure { forwards, .. } => {
                forwards.iter().take(MOST).flat_map(|forward| line::object("ports", &ports(forward))).collect()
            }
            Self::Check { .. } | Self::Remove => Vec::new(),
        }
    }
}

/// Returns the node's ports of a forward, as a policy writes them.
fn ports(forward: &Forward) -> String {
    match (forward.host_port, forward.last_host_port()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    }
}
