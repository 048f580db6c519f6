//! `mac-guard` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::Mac;

pub(crate) fn ensure(host: &super::veth::HostEnd, mac: Mac) -> Result<(), Error> {
    super::ask(postern_types::ops::MacGuard::Ensure { host: *host, mac })
}

pub(crate) fn check(host: &super::veth::HostEnd, mac: Mac) -> Result<(), Error> {
    super::ask(postern_types::ops::MacGuard::Check { host: *host, mac })
}

pub(crate) fn remove() -> Result<(), Error> {
    super::ask(postern_types::ops::MacGuard::Remove)
}
