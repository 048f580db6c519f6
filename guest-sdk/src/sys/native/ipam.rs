//! `ipam` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;

pub(crate) fn add() -> Result<String, Error> {
    super::ask(postern_types::ops::Ipam::Add)
}

pub(crate) fn del() -> Result<(), Error> {
    super::ask(postern_types::ops::Ipam::Del)
}

pub(crate) fn check() -> Result<(), Error> {
    super::ask(postern_types::ops::Ipam::Check)
}

pub(crate) fn status() -> Result<(), Error> {
    super::ask(postern_types::ops::Ipam::Status)
}

pub(crate) fn gc() -> Result<(), Error> {
    super::ask(postern_types::ops::Ipam::Gc)
}
