//! `mac-guard` on the build machine.
//!
//! Written by `cargo xtask surface` from `wit/`, which is to be changed in place of this.

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
