//! `postern:cni/masquerade`.

use super::{Failure, wit};
use crate::state::State;
use postern_types::Operation;
use wit::masquerade::Backend;

impl wit::masquerade::Host for State {
    fn ensure(&mut self, backend: Option<Backend>) -> Result<(), Failure> {
        self.done(Operation::MasqueradeEnsure { backend: backend.map(Into::into) })
    }

    fn check(&mut self, backend: Option<Backend>) -> Result<(), Failure> {
        self.done(Operation::MasqueradeCheck { backend: backend.map(Into::into) })
    }

    fn remove(&mut self) -> Result<(), Failure> {
        self.done(Operation::MasqueradeRemove)
    }
}

impl From<Backend> for postern_types::Backend {
    fn from(backend: Backend) -> Self {
        match backend {
            Backend::Nftables => Self::Nftables,
            Backend::Iptables => Self::Iptables,
        }
    }
}
