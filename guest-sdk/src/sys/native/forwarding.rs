//! `forwarding` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;

pub(crate) fn enable() -> Result<(), Error> {
    super::ask(postern_types::ops::Forwarding::Enable)
}
