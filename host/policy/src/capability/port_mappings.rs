//! `port-mappings`: the ports of the node that may lead to a container, and the packet filters that may carry it.

use super::Decide;
use crate::grammar::{Key, ValueKind, required};
use crate::granted::{Grant, Granted};
use crate::line::{self, Change};
use crate::port;
use crate::prelude::*;
use crate::rules::RuleInput;
use postern_types::{Backend, Capability, Forward, OpError, ops};

/// The keys of its table.
pub const KEYS: &[Key] =
    &[required("ports", ValueKind::Ports, "1-65535"), required("backends", ValueKind::Backend, "nftables")];

/// The most ports that a table is completed with, one line for each forward.
const MOST: usize = 16;

impl Decide for ops::PortMappings {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Ensure { forwards, .. } => {
                let granted = ranges(grant);
                let is_granted = |forward: &&Forward| {
                    let (first, last) = (forward.host_port, forward.last_host_port());
                    port::covers(&granted, first, last)
                };
                match forwards.iter().find(|forward| !is_granted(forward)) {
                    None => Ok("port-mappings.ports"),
                    Some(refused) => {
                        let ports = ports(refused);
                        let what = format!(" on the node's port {ports}");
                        Err(input.deny(
                            Capability::PortMappings,
                            &ports,
                            &what,
                            Vec::from([line::text("ports", &*ports)]),
                        ))
                    }
                }
            }
            // Which ports were forwarded matters only where rules are made.
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

/// Returns the granted ranges of ports.
fn ranges(grant: &Grant) -> Vec<(u16, u16)> {
    grant.texts("ports").filter_map(|text| port::ports(&text)).collect()
}

impl Granted {
    /// True if policy lets forwards be made with this packet filter.
    pub fn allows_forwards_by(&self, backend: Backend) -> bool {
        self.grant(Capability::PortMappings).is_some_and(|grant| grant.matches("backends", backend.name()))
    }

    /// Returns the policy line that would allow this packet filter.
    pub fn forwards_hint(&self, backend: Backend) -> String {
        self.hint(Capability::PortMappings, Vec::from([line::text("backends", backend.name())]))
    }
}
