//! `postern:cni/loopback`.

use super::{Failure, wit};
use crate::state::State as Store;
use postern_types::{Reply, ops};
use wit::loopback::State;

impl wit::loopback::Host for Store {
    fn up(&mut self) -> Result<(), Failure> {
        self.done(ops::Loopback::Up)
    }

    fn down(&mut self) -> Result<(), Failure> {
        self.done(ops::Loopback::Down)
    }

    fn addresses(&mut self) -> Result<State, Failure> {
        match self.call(ops::Loopback::Addresses)? {
            Reply::Loopback { up, addresses } => {
                Ok(State { up, addresses: addresses.into_iter().map(Into::into).collect() })
            }
            other => Err(other.unexpected().into()),
        }
    }
}
