//! `postern:cni/attachments`.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{Reply, ops};

impl wit::attachments::Host for State {
    fn collect(&mut self) -> Result<u32, Failure> {
        match self.call(ops::Attachments::Collect)? {
            Reply::Removed(count) => Ok(count),
            other => Err(other.unexpected().into()),
        }
    }
}
