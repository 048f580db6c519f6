//! `attachments` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`, which is to be changed in place of this.

use super::wit::attachments as wit;
use crate::error::Error;

pub(crate) fn collect() -> Result<u32, Error> {
    wit::collect().map_err(super::failure)
}
