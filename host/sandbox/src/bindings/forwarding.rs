//! `postern:cni/forwarding`.

use super::{Failure, wit};
use crate::state::State;
use postern_types::ops;

impl wit::forwarding::Host for State {
    fn enable(&mut self) -> Result<(), Failure> {
        self.done(ops::Forwarding::Enable)
    }
}
