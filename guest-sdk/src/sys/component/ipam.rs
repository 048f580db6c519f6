//! `ipam` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::ipam as wit;
use crate::error::Error;

pub(crate) fn add() -> Result<String, Error> {
    wit::add().map_err(super::failure)
}

pub(crate) fn del() -> Result<(), Error> {
    wit::del().map_err(super::failure)
}

pub(crate) fn check() -> Result<(), Error> {
    wit::check().map_err(super::failure)
}

pub(crate) fn status() -> Result<(), Error> {
    wit::status().map_err(super::failure)
}

pub(crate) fn gc() -> Result<(), Error> {
    wit::gc().map_err(super::failure)
}
