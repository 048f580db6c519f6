//! `postern:cni/vrf`.

use super::link::Link;
use super::{Failure, wit};
use crate::state::State;
use postern_types::ops;
use wasmtime::component::Resource;

impl wit::vrf::Host for State {
    fn join(&mut self, link: Resource<Link>, name: String, table: Option<u32>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        self.done(ops::Vrf::Join { link, name, table })
    }

    fn check(&mut self, name: String) -> Result<(), Failure> {
        self.done(ops::Vrf::Check { name })
    }

    fn leave(&mut self) -> Result<(), Failure> {
        self.done(ops::Vrf::Leave)
    }
}
