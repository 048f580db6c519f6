//! `postern:cni/mac-guard`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::ops;
use wasmtime::component::Resource;

impl wit::mac_guard::Host for State {
    fn ensure(&mut self, host: Resource<super::veth::HostEnd>, mac: String) -> Result<(), Failure> {
        let host = self.table.get(&host)?.handle;
        let mac = parse::text("mac-guard.ensure", &mac)?;
        self.call(ops::MacGuard::Ensure { host, mac })
    }

    fn check(&mut self, host: Resource<super::veth::HostEnd>, mac: String) -> Result<(), Failure> {
        let host = self.table.get(&host)?.handle;
        let mac = parse::text("mac-guard.check", &mac)?;
        self.call(ops::MacGuard::Check { host, mac })
    }

    fn remove(&mut self) -> Result<(), Failure> {
        self.call(ops::MacGuard::Remove)
    }
}
