//! `postern:cni/ipam`.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{Operation, Reply};

impl wit::ipam::Host for State {
    fn add(&mut self) -> Result<String, Failure> {
        match self.call(Operation::IpamAdd)? {
            Reply::Result(json) => Ok(json),
            other => Err(other.unexpected().into()),
        }
    }

    fn del(&mut self) -> Result<(), Failure> {
        self.done(Operation::IpamDel)
    }

    fn check(&mut self) -> Result<(), Failure> {
        self.done(Operation::IpamCheck)
    }

    fn status(&mut self) -> Result<(), Failure> {
        self.done(Operation::IpamStatus)
    }

    fn gc(&mut self) -> Result<(), Failure> {
        self.done(Operation::IpamGc)
    }
}
