//! `masquerade`: the packet filters that may carry it.

use super::prelude::*;
use crate::grammar::ANY;
use postern_types::Backend;

/// The keys of its table.
pub const KEYS: &[Key] = &[required("backends", ValueKind::Backend, "${config.ipMasqBackend | any}")];

impl Decide for ops::Masquerade {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Ensure { backend } => {
                // A guest that names no backend gets one of those that are granted: the gate chooses.
                let granted = |backend: Backend| allows(grant, backend);
                if backend.map_or_else(|| Backend::ALL.into_iter().any(granted), granted) {
                    return Ok("masquerade.backends");
                }
                input.one_of(grant, "masquerade.backends", backend.map_or(ANY, Backend::name))
            }
            // The backend matters only where rules are made. To compare and remove rules is always allowed: they are
            // the attachment's own. A native plugin may have made them with the other backend.
            Self::Check { .. } | Self::Remove => Ok(grant.name),
        }
    }

    fn objects(&self, _: &RuleInput<'_>) -> Vec<Change> {
        match self {
            // The default comes from the configuration.
            Self::Ensure { backend: Some(Backend::Iptables) } => line::object("backends", Backend::Iptables.name()),
            Self::Ensure { backend: Some(Backend::Nftables) | None } | Self::Check { .. } | Self::Remove => Vec::new(),
        }
    }
}

impl Granted {
    /// True if policy lets masquerading be made with this packet filter.
    pub fn allows_backend(&self, backend: Backend) -> bool {
        self.grant(Capability::Masquerade).is_some_and(|grant| allows(grant, backend))
    }
}

fn allows(grant: &Grant, backend: Backend) -> bool {
    grant.matches("backends", backend.name()) || grant.matches("backends", ANY)
}
