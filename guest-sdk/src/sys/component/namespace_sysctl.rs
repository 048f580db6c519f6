//! `namespace-sysctl` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::namespace_sysctl as wit;
use crate::error::Error;

pub(crate) fn set(key: &str, value: &str) -> Result<(), Error> {
    wit::set(key, value).map_err(super::failure)
}

pub(crate) fn check(key: &str, value: &str) -> Result<(), Error> {
    wit::check(key, value).map_err(super::failure)
}
