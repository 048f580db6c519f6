//! `postern:cni/namespace-sysctl`.

use super::{Failure, wit};
use crate::state::State;
use postern_types::ops;

impl wit::namespace_sysctl::Host for State {
    fn set(&mut self, key: String, value: String) -> Result<(), Failure> {
        self.done(ops::NamespaceSysctl::Set { key, value })
    }

    fn check(&mut self, key: String, value: String) -> Result<(), Failure> {
        self.done(ops::NamespaceSysctl::Check { key, value })
    }
}
