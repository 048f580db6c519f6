//! `device` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::{DeviceKey, LinkInfo};

pub(crate) fn find(by: DeviceKey, value: &str) -> Result<Option<LinkInfo>, Error> {
    super::ask(postern_types::ops::Device::Find { by, value: value.to_owned() })
}

pub(crate) fn take(by: DeviceKey, value: &str) -> Result<(super::link::Link, LinkInfo), Error> {
    let reply: LinkInfo = super::ask(postern_types::ops::Device::Take { by, value: value.to_owned() })?;
    Ok((reply.handle, reply))
}

pub(crate) fn give_back() -> Result<(), Error> {
    super::ask(postern_types::ops::Device::GiveBack)
}
