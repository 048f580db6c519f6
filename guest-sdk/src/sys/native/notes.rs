//! `notes` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;

pub(crate) fn set(text: &str) -> Result<(), Error> {
    super::ask(postern_types::ops::Notes::Set { text: text.to_owned() })
}

pub(crate) fn get() -> Result<Option<String>, Error> {
    super::ask(postern_types::ops::Notes::Get)
}
