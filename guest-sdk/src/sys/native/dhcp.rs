//! `dhcp` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

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
