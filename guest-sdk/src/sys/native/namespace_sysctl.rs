//! `namespace-sysctl` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;

pub(crate) fn set(key: &str, value: &str) -> Result<(), Error> {
    super::ask(postern_types::ops::NamespaceSysctl::Set { key: key.to_owned(), value: value.to_owned() })
}

pub(crate) fn check(key: &str, value: &str) -> Result<(), Error> {
    super::ask(postern_types::ops::NamespaceSysctl::Check { key: key.to_owned(), value: value.to_owned() })
}
