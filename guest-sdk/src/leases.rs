//! host-local's address store, limited to the attachment and its network.

use crate::error::Error;
use crate::sys::{self, host};
use postern_types::{LeaseGrant, LeaseRange};
use std::net::IpAddr;

#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, ops},
};

/// Reserves one address from each set of ranges: the requested one that lies in it, or the next one, round robin.
///
/// # Errors
/// [`postern_types::ErrorCode::InvalidArgument`] for ranges that make no sense, `Exhausted`, `Exists` (taken, or this
/// attachment has one already), `TryAgain`, `Io`.
pub fn reserve(sets: &[Vec<LeaseRange>], requested: &[IpAddr]) -> Result<Vec<LeaseGrant>, Error> {
    host!(
        component: grants(sys::leases::reserve(&translate(sets), &sys::texts(requested)).map_err(sys::failure)?),
        fake: ask!(
            ops::Leases::Reserve { sets: sets.to_vec(), requested: requested.to_vec() },
            Reply::Leases(leases) => leases
        ),
    )
}

/// Returns the attachment's addresses, with no gateway and the full prefix length.
pub fn held() -> Result<Vec<LeaseGrant>, Error> {
    host!(
        component: grants(sys::leases::held().map_err(sys::failure)?),
        fake: ask!(ops::Leases::Held, Reply::Leases(leases) => leases),
    )
}

/// Releases the attachment's addresses. The host removes everything in the record that uses them first. It succeeds if
/// there is nothing to release.
pub fn release() -> Result<(), Error> {
    host!(
        component: sys::leases::release().map_err(sys::failure),
        fake: sys::done(ops::Leases::Release),
    )
}

/// Frees every lease of the network with an owner outside the runtime's list of valid attachments. Returns their
/// number.
pub fn retain() -> Result<u32, Error> {
    host!(
        component: sys::leases::retain().map_err(sys::failure),
        fake: ask!(ops::Leases::Retain, Reply::Removed(count) => count),
    )
}

/// For STATUS: false if a set has no free address, and the node's operator wants STATUS to say so.
pub fn available(sets: &[Vec<LeaseRange>]) -> Result<bool, Error> {
    host!(
        component: sys::leases::available(&translate(sets)).map_err(sys::failure),
        fake: ask!(ops::Leases::Available { sets: sets.to_vec() }, Reply::Available(free) => free),
    )
}

#[cfg(target_arch = "wasm32")]
fn translate(sets: &[Vec<LeaseRange>]) -> Vec<Vec<sys::leases::LeaseRange>> {
    let text = |ip: &Option<IpAddr>| ip.map(|ip| ip.to_string());
    let range = |range: &LeaseRange| sys::leases::LeaseRange {
        subnet: range.subnet.to_string(),
        start: text(&range.start),
        end: text(&range.end),
        gateway: text(&range.gateway),
    };
    sets.iter().map(|set| set.iter().map(range).collect()).collect()
}

#[cfg(target_arch = "wasm32")]
fn grants(leases: Vec<sys::leases::Lease>) -> Result<Vec<LeaseGrant>, Error> {
    let grant = |lease: sys::leases::Lease| {
        let gateway = match lease.gateway {
            Some(text) => Some(sys::read(&text)?),
            None => None,
        };
        Ok(LeaseGrant { address: sys::read(&lease.address)?, gateway })
    };
    leases.into_iter().map(grant).collect()
}
