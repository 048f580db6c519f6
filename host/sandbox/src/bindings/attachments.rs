//! `postern:cni/attachments`.
//!
//! Written by `cargo xtask surface` from `wit/`, which is to be changed in place of this.

use super::{Failure, wit};
use crate::state::State;
use postern_types::ops;

impl wit::attachments::Host for State {
    fn collect(&mut self) -> Result<u32, Failure> {
        self.call(ops::Attachments::Collect)
    }
}
