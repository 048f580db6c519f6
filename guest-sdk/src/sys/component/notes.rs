//! `notes` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::notes as wit;
use crate::error::Error;

pub(crate) fn set(text: &str) -> Result<(), Error> {
    wit::set(text).map_err(super::failure)
}

pub(crate) fn get() -> Result<Option<String>, Error> {
    wit::get().map_err(super::failure)
}
