//! `forwarding` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::forwarding as wit;
use crate::error::Error;

pub(crate) fn enable() -> Result<(), Error> {
    wit::enable().map_err(super::failure)
}
