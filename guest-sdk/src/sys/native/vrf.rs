//! `vrf` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;

pub(crate) fn join(link: &super::link::Link, name: &str, table: Option<u32>) -> Result<(), Error> {
    super::ask(postern_types::ops::Vrf::Join { link: *link, name: name.to_owned(), table })
}

pub(crate) fn check(name: &str) -> Result<(), Error> {
    super::ask(postern_types::ops::Vrf::Check { name: name.to_owned() })
}

pub(crate) fn leave() -> Result<(), Error> {
    super::ask(postern_types::ops::Vrf::Leave)
}
