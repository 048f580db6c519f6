//! `leases` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::leases as wit;
use crate::error::Error;
use postern_types::{LeaseGrant, LeaseRange};
use std::net::IpAddr;

pub(crate) fn reserve(sets: &[Vec<LeaseRange>], requested: &[IpAddr]) -> Result<Vec<LeaseGrant>, Error> {
    let got = wit::reserve(
        &sets.iter().map(|each| each.iter().map(wire_lease_range).collect()).collect::<Vec<_>>(),
        &super::texts(requested),
    )
    .map_err(super::failure)?;
    got.into_iter().map(got_lease).collect::<Result<Vec<_>, Error>>()
}

pub(crate) fn held() -> Result<Vec<LeaseGrant>, Error> {
    let got = wit::held().map_err(super::failure)?;
    got.into_iter().map(got_lease).collect::<Result<Vec<_>, Error>>()
}

pub(crate) fn release() -> Result<(), Error> {
    wit::release().map_err(super::failure)
}

pub(crate) fn retain() -> Result<u32, Error> {
    wit::retain().map_err(super::failure)
}

pub(crate) fn available(sets: &[Vec<LeaseRange>]) -> Result<bool, Error> {
    wit::available(&sets.iter().map(|each| each.iter().map(wire_lease_range).collect()).collect::<Vec<_>>())
        .map_err(super::failure)
}

fn wire_lease_range(value: &LeaseRange) -> wit::LeaseRange {
    wit::LeaseRange {
        subnet: value.subnet.to_string(),
        start: value.start.map(|value| value.to_string()),
        end: value.end.map(|value| value.to_string()),
        gateway: value.gateway.map(|value| value.to_string()),
    }
}

fn got_lease(got: wit::Lease) -> Result<LeaseGrant, Error> {
    Ok(LeaseGrant { address: super::read(&got.address)?, gateway: super::maybe(got.gateway.as_deref())? })
}
