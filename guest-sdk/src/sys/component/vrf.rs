//! `vrf` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::vrf as wit;
use crate::error::Error;

pub(crate) fn join(link: &super::link::Link, name: &str, table: Option<u32>) -> Result<(), Error> {
    wit::join(link, name, table).map_err(super::failure)
}

pub(crate) fn check(name: &str) -> Result<(), Error> {
    wit::check(name).map_err(super::failure)
}

pub(crate) fn leave() -> Result<(), Error> {
    wit::leave().map_err(super::failure)
}
