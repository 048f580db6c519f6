//! `dhcp` on the build machine.
//!
//! Written by `cargo xtask surface` from `wit/`, which is to be changed in place of this.

use crate::error::Error;
use postern_types::DhcpLease;

pub(crate) fn acquire() -> Result<DhcpLease, Error> {
    super::ask(postern_types::ops::Dhcp::Acquire)
}

pub(crate) fn check() -> Result<DhcpLease, Error> {
    super::ask(postern_types::ops::Dhcp::Check)
}

pub(crate) fn release() -> Result<(), Error> {
    super::ask(postern_types::ops::Dhcp::Release)
}

pub(crate) fn status() -> Result<(), Error> {
    super::ask(postern_types::ops::Dhcp::Status)
}
