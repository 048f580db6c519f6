//! `postern:cni/loopback`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{LoopbackState, ops};

impl wit::loopback::Host for State {
    fn up(&mut self) -> Result<(), Failure> {
        self.call(ops::Loopback::Up)
    }

    fn down(&mut self) -> Result<(), Failure> {
        self.call(ops::Loopback::Down)
    }

    fn addresses(&mut self) -> Result<wit::loopback::State, Failure> {
        let reply: LoopbackState = self.call(ops::Loopback::Addresses)?;
        Ok(show_state(reply))
    }
}

fn show_state(shown: LoopbackState) -> wit::loopback::State {
    wit::loopback::State { up: shown.up, addresses: shown.addresses.into_iter().map(|shown| shown.into()).collect() }
}
