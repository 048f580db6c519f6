//! `leases` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::{LeaseGrant, LeaseRange};
use std::net::IpAddr;

pub(crate) fn reserve(sets: &[Vec<LeaseRange>], requested: &[IpAddr]) -> Result<Vec<LeaseGrant>, Error> {
    super::ask(postern_types::ops::Leases::Reserve { sets: sets.to_vec(), requested: requested.to_vec() })
}

pub(crate) fn held() -> Result<Vec<LeaseGrant>, Error> {
    super::ask(postern_types::ops::Leases::Held)
}

pub(crate) fn release() -> Result<(), Error> {
    super::ask(postern_types::ops::Leases::Release)
}

pub(crate) fn retain() -> Result<u32, Error> {
    super::ask(postern_types::ops::Leases::Retain)
}

pub(crate) fn available(sets: &[Vec<LeaseRange>]) -> Result<bool, Error> {
    super::ask(postern_types::ops::Leases::Available { sets: sets.to_vec() })
}
