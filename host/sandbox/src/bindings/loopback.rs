//! `postern:cni/loopback`.

use super::{Failure, wit};
use crate::state::State as Store;
use postern_types::{Operation, Reply};
use wit::loopback::State;

impl wit::loopback::Host for Store {
    fn up(&mut self) -> Result<(), Failure> {
        self.done(Operation::LoopbackUp)
    }

    fn down(&mut self) -> Result<(), Failure> {
        self.done(Operation::LoopbackDown)
    }

    fn addresses(&mut self) -> Result<State, Failure> {
        match self.call(Operation::LoopbackAddresses)? {
            Reply::Loopback { up, addresses } => {
                Ok(State { up, addresses: addresses.into_iter().map(Into::into).collect() })
            }
            other => Err(other.unexpected().into()),
        }
    }
}
