//! `postern:cni/namespace-sysctl`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::ops;

impl wit::namespace_sysctl::Host for State {
    fn set(&mut self, key: String, value: String) -> Result<(), Failure> {
        self.call(ops::NamespaceSysctl::Set { key, value })
    }

    fn check(&mut self, key: String, value: String) -> Result<(), Failure> {
        self.call(ops::NamespaceSysctl::Check { key, value })
    }
}
