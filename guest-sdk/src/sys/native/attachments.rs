//! `attachments` on the build machine.
//!
//! Written by `cargo xtask surface` from `wit/`, which is to be changed in place of this.

use crate::error::Error;

pub(crate) fn collect() -> Result<u32, Error> {
    super::ask(postern_types::ops::Attachments::Collect)
}
