//! `postern:cni/masquerade`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::ops;

impl wit::masquerade::Host for State {
    fn ensure(&mut self, backend: Option<wit::masquerade::Backend>) -> Result<(), Failure> {
        let backend = backend.map(read_backend);
        self.call(ops::Masquerade::Ensure { backend })
    }

    fn check(&mut self, backend: Option<wit::masquerade::Backend>) -> Result<(), Failure> {
        let backend = backend.map(read_backend);
        self.call(ops::Masquerade::Check { backend })
    }

    fn remove(&mut self) -> Result<(), Failure> {
        self.call(ops::Masquerade::Remove)
    }
}

fn read_backend(given: wit::masquerade::Backend) -> postern_types::Backend {
    match given {
        wit::masquerade::Backend::Nftables => postern_types::Backend::Nftables,
        wit::masquerade::Backend::Iptables => postern_types::Backend::Iptables,
    }
}
