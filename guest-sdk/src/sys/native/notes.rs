//! `notes` on the build machine.
//!
//! Written by `cargo xtask surface` from `wit/`, which is to be changed in place of this.

use crate::error::Error;

pub(crate) fn set(text: &str) -> Result<(), Error> {
    super::ask(postern_types::ops::Notes::Set { text: text.to_owned() })
}

pub(crate) fn get() -> Result<Option<String>, Error> {
    super::ask(postern_types::ops::Notes::Get)
}
