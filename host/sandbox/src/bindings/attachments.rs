//! `postern:cni/attachments`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::ops;

impl wit::attachments::Host for State {
    fn collect(&mut self) -> Result<u32, Failure> {
        self.call(ops::Attachments::Collect)
    }
}
