//! `device` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::device as wit;
use crate::error::Error;
use postern_types::{DeviceKey, LinkInfo};

pub(crate) fn find(by: DeviceKey, value: &str) -> Result<Option<LinkInfo>, Error> {
    let got = wit::find(wire_key(by), value).map_err(super::failure)?;
    Ok(got.map(super::link_info))
}

pub(crate) fn take(by: DeviceKey, value: &str) -> Result<(super::link::Link, LinkInfo), Error> {
    let got = wit::take(wire_key(by), value).map_err(super::failure)?;
    Ok(got_taken(got))
}

pub(crate) fn give_back() -> Result<(), Error> {
    wit::give_back().map_err(super::failure)
}

fn wire_key(value: DeviceKey) -> wit::Key {
    match value {
        DeviceKey::Name => wit::Key::Name,
        DeviceKey::Address => wit::Key::Address,
        DeviceKey::Path => wit::Key::Path,
        DeviceKey::Pci => wit::Key::Pci,
        DeviceKey::Id => wit::Key::Id,
    }
}

fn got_taken(got: wit::Taken) -> (super::link::Link, LinkInfo) {
    (got.link, super::link_info(got.attributes))
}
