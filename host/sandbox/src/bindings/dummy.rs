//! `postern:cni/dummy`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{LinkInfo, ops};

impl wit::dummy::Host for State {
    fn create(&mut self) -> Result<wit::dummy::Made, Failure> {
        let reply: LinkInfo = self.call(ops::Dummy::Create)?;
        self.give_dummy_made(reply)
    }
}

impl State {
    fn give_dummy_made(&mut self, shown: LinkInfo) -> Result<wit::dummy::Made, Failure> {
        Ok(wit::dummy::Made {
            link: self.table.push(super::link::Link { handle: shown.handle })?,
            attributes: shown.into(),
        })
    }
}
