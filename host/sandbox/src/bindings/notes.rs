//! `postern:cni/notes`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::ops;

impl wit::notes::Host for State {
    fn set(&mut self, text: String) -> Result<(), Failure> {
        self.call(ops::Notes::Set { text })
    }

    fn get(&mut self) -> Result<Option<String>, Failure> {
        self.call(ops::Notes::Get)
    }
}
