//! `postern:cni/forwarding`.

use super::{Failure, wit};
use crate::state::State;
use postern_types::Operation;

impl wit::forwarding::Host for State {
    fn enable(&mut self) -> Result<(), Failure> {
        self.done(Operation::ForwardingEnable)
    }
}
