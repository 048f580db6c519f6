//! `attachments` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::attachments as wit;
use crate::error::Error;

pub(crate) fn collect() -> Result<u32, Error> {
    wit::collect().map_err(super::failure)
}
