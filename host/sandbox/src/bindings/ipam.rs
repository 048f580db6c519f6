//! `postern:cni/ipam`.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{Reply, ops};

impl wit::ipam::Host for State {
    fn add(&mut self) -> Result<String, Failure> {
        match self.call(ops::Ipam::Add)? {
            Reply::Result(json) => Ok(json),
            other => Err(other.unexpected().into()),
        }
    }

    fn del(&mut self) -> Result<(), Failure> {
        self.done(ops::Ipam::Del)
    }

    fn check(&mut self) -> Result<(), Failure> {
        self.done(ops::Ipam::Check)
    }

    fn status(&mut self) -> Result<(), Failure> {
        self.done(ops::Ipam::Status)
    }

    fn gc(&mut self) -> Result<(), Failure> {
        self.done(ops::Ipam::Gc)
    }
}
