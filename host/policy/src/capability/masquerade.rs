//! `masquerade`: the packet filters that may have the rules.

use super::prelude::*;
use crate::grammar::ANY;
use postern_types::Backend;

/// The keys of `[grant.masquerade]`.
pub const KEYS: &[Key] = &[required("backends", ValueKind::Backend, "${config.ipMasqBackend | any}")];

impl Decide for ops::Masquerade {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Ensure { backend } => {
                // For a guest that names no backend, the gate chooses a granted backend.
                let granted = |backend: Backend| allows(grant, backend);
                if backend.map_or_else(|| Backend::ALL.into_iter().any(granted), granted) {
                    return Ok("masquerade.backends");
                }
                input.one_of(grant, "masquerade.backends", backend.map_or(ANY, Backend::name))
            }
            // The backend matters only when rules are made. A plugin may always compare and remove its attachment's own
            // rules. A native plugin may have made these rules with another backend.
            Self::Check { .. } | Self::Remove => Ok(grant.name),
        }
    }

    fn objects(&self, _: &RuleInput<'_>) -> Vec<Change> {
        match self {
            // Other cases need no object: the placeholder of the key takes the backend from the configuration.
            Self::Ensure { backend: Some(Backend::Iptables) } => line::object("backends", Backend::Iptables.name()),
            Self::Ensure { backend: Some(Backend::Nftables) | None } | Self::Check { .. } | Self::Remove => Vec::new(),
        }
    }
}

impl Granted {
    /// True if policy allows masquerading with this packet filter.
    pub fn allows_backend(&self, backend: Backend) -> bool {
        self.grant(Capability::Masquerade).is_some_and(|grant| allows(grant, backend))
    }
}

fn allows(grant: &Grant, backend: Backend) -> bool {
    grant.matches("backends", backend.name()) || grant.matches("backends", ANY)
}
