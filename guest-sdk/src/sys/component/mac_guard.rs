//! `mac-guard` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::mac_guard as wit;
use crate::error::Error;
use postern_types::Mac;

pub(crate) fn ensure(host: &super::veth::HostEnd, mac: Mac) -> Result<(), Error> {
    wit::ensure(host, &mac.to_string()).map_err(super::failure)
}

pub(crate) fn check(host: &super::veth::HostEnd, mac: Mac) -> Result<(), Error> {
    wit::check(host, &mac.to_string()).map_err(super::failure)
}

pub(crate) fn remove() -> Result<(), Error> {
    wit::remove().map_err(super::failure)
}
