//! `postern:cni/masquerade`.

use super::{Failure, wit};
use crate::state::State;
use postern_types::ops;
use wit::masquerade::Backend;

impl wit::masquerade::Host for State {
    fn ensure(&mut self, backend: Option<Backend>) -> Result<(), Failure> {
        self.done(ops::Masquerade::Ensure { backend: backend.map(Into::into) })
    }

    fn check(&mut self, backend: Option<Backend>) -> Result<(), Failure> {
        self.done(ops::Masquerade::Check { backend: backend.map(Into::into) })
    }

    fn remove(&mut self) -> Result<(), Failure> {
        self.done(ops::Masquerade::Remove)
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
