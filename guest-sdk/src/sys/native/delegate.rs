//! `delegate` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::SubnetFile;

pub(crate) fn subnet_file() -> Result<SubnetFile, Error> {
    super::ask(postern_types::ops::Delegate::SubnetFile)
}

pub(crate) fn add(config: &str) -> Result<String, Error> {
    super::ask(postern_types::ops::Delegate::Add { config: config.to_owned() })
}

pub(crate) fn del() -> Result<(), Error> {
    super::ask(postern_types::ops::Delegate::Del)
}

pub(crate) fn check() -> Result<(), Error> {
    super::ask(postern_types::ops::Delegate::Check)
}

pub(crate) fn status() -> Result<(), Error> {
    super::ask(postern_types::ops::Delegate::Status)
}

pub(crate) fn gc() -> Result<(), Error> {
    super::ask(postern_types::ops::Delegate::Gc)
}
