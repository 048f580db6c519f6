//! `masquerade` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::Backend;

pub(crate) fn ensure(backend: Option<Backend>) -> Result<(), Error> {
    super::ask(postern_types::ops::Masquerade::Ensure { backend })
}

pub(crate) fn check(backend: Option<Backend>) -> Result<(), Error> {
    super::ask(postern_types::ops::Masquerade::Check { backend })
}

pub(crate) fn remove() -> Result<(), Error> {
    super::ask(postern_types::ops::Masquerade::Remove)
}
