//! host-local's address store, limited to the attachment and its network.

use crate::error::Error;
use crate::sys;
use postern_types::{LeaseGrant, LeaseRange};
use std::net::IpAddr;

/// Reserves one address from each set of ranges: the requested address in the set, or the next free address, round
/// robin.
///
/// # Errors
/// [`postern_types::ErrorCode::InvalidArgument`] for invalid ranges, `Exhausted`, `Exists` (the address is taken, or
/// this attachment has an address already), `TryAgain`, `Io`.
pub fn reserve(sets: &[Vec<LeaseRange>], requested: &[IpAddr]) -> Result<Vec<LeaseGrant>, Error> {
    sys::leases::reserve(sets, requested)
}

/// Returns the attachment's addresses, with no gateway and the full prefix length.
pub fn held() -> Result<Vec<LeaseGrant>, Error> {
    sys::leases::held()
}

/// Releases the attachment's addresses. The host first removes everything in the record that uses the addresses. The
/// call succeeds if there is nothing to release.
pub fn release() -> Result<(), Error> {
    sys::leases::release()
}

/// Frees every lease of the network with an owner outside the runtime's list of valid attachments. Returns the number
/// of freed leases.
pub fn retain() -> Result<u32, Error> {
    sys::leases::retain()
}

/// For STATUS: false if a set has no free address, and the node's operator wants STATUS to report this.
pub fn available(sets: &[Vec<LeaseRange>]) -> Result<bool, Error> {
    sys::leases::available(sets)
}
