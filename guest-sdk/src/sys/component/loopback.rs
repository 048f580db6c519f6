//! `loopback` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::loopback as wit;
use crate::error::Error;
use postern_types::LoopbackState;

pub(crate) fn up() -> Result<(), Error> {
    wit::up().map_err(super::failure)
}

pub(crate) fn down() -> Result<(), Error> {
    wit::down().map_err(super::failure)
}

pub(crate) fn addresses() -> Result<LoopbackState, Error> {
    let got = wit::addresses().map_err(super::failure)?;
    got_state(got)
}

fn got_state(got: wit::State) -> Result<LoopbackState, Error> {
    Ok(LoopbackState {
        up: got.up,
        addresses: got.addresses.into_iter().map(super::address).collect::<Result<Vec<_>, Error>>()?,
    })
}
