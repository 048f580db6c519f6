//! `forwarding` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`, which is to be changed in place of this.

use super::wit::forwarding as wit;
use crate::error::Error;

pub(crate) fn enable() -> Result<(), Error> {
    wit::enable().map_err(super::failure)
}
