//! `postern:cni/ipam`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::ops;

impl wit::ipam::Host for State {
    fn add(&mut self) -> Result<String, Failure> {
        self.call(ops::Ipam::Add)
    }

    fn del(&mut self) -> Result<(), Failure> {
        self.call(ops::Ipam::Del)
    }

    fn check(&mut self) -> Result<(), Failure> {
        self.call(ops::Ipam::Check)
    }

    fn status(&mut self) -> Result<(), Failure> {
        self.call(ops::Ipam::Status)
    }

    fn gc(&mut self) -> Result<(), Failure> {
        self.call(ops::Ipam::Gc)
    }
}
