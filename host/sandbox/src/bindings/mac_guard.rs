//! `postern:cni/mac-guard`.

use super::veth::HostEnd;
use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::Operation;
use wasmtime::component::Resource;

impl wit::mac_guard::Host for State {
    fn ensure(&mut self, host: Resource<HostEnd>, mac: String) -> Result<(), Failure> {
        let host = self.table.get(&host)?.handle;
        let mac = parse::text("mac-guard.ensure", &mac)?;
        self.done(Operation::MacGuardEnsure { host, mac })
    }

    fn check(&mut self, host: Resource<HostEnd>, mac: String) -> Result<(), Failure> {
        let host = self.table.get(&host)?.handle;
        let mac = parse::text("mac-guard.check", &mac)?;
        self.done(Operation::MacGuardCheck { host, mac })
    }

    fn remove(&mut self) -> Result<(), Failure> {
        self.done(Operation::MacGuardRemove)
    }
}
