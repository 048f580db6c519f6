//! `postern:cni/forwarding`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::ops;

impl wit::forwarding::Host for State {
    fn enable(&mut self) -> Result<(), Failure> {
        self.call(ops::Forwarding::Enable)
    }
}
