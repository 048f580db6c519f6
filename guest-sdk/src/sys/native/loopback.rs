//! `loopback` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::LoopbackState;

pub(crate) fn up() -> Result<(), Error> {
    super::ask(postern_types::ops::Loopback::Up)
}

pub(crate) fn down() -> Result<(), Error> {
    super::ask(postern_types::ops::Loopback::Down)
}

pub(crate) fn addresses() -> Result<LoopbackState, Error> {
    super::ask(postern_types::ops::Loopback::Addresses)
}
