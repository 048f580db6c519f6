//! `postern:cni/vrf`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::ops;
use wasmtime::component::Resource;

impl wit::vrf::Host for State {
    fn join(&mut self, link: Resource<super::link::Link>, name: String, table: Option<u32>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        self.call(ops::Vrf::Join { link, name, table })
    }

    fn check(&mut self, name: String) -> Result<(), Failure> {
        self.call(ops::Vrf::Check { name })
    }

    fn leave(&mut self) -> Result<(), Failure> {
        self.call(ops::Vrf::Leave)
    }
}
