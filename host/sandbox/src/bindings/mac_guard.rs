//! `postern:cni/mac-guard`.

use super::veth::HostEnd;
use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::ops;
use wasmtime::component::Resource;

impl wit::mac_guard::Host for State {
    fn ensure(&mut self, host: Resource<HostEnd>, mac: String) -> Result<(), Failure> {
        let host = self.table.get(&host)?.handle;
        let mac = parse::text("mac-guard.ensure", &mac)?;
        self.done(ops::MacGuard::Ensure { host, mac })
    }

    fn check(&mut self, host: Resource<HostEnd>, mac: String) -> Result<(), Failure> {
        let host = self.table.get(&host)?.handle;
        let mac = parse::text("mac-guard.check", &mac)?;
        self.done(ops::MacGuard::Check { host, mac })
    }

    fn remove(&mut self) -> Result<(), Failure> {
        self.done(ops::MacGuard::Remove)
    }
}
