//! The host end of a routed pair.

use crate::error::Error;
use crate::sys::{self, host};
use crate::veth::HostEnd;

#[cfg(not(target_arch = "wasm32"))]
use postern_types::ops;

/// Puts the gateway of each of the attachment's addresses on the host end, and routes the address there.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::InvalidArgument`] for an address without gateway.
pub fn ensure(end: &HostEnd) -> Result<(), Error> {
    host!(
        component: sys::point_to_point::ensure(&end.0).map_err(sys::failure),
        fake: sys::done(ops::PointToPoint::Ensure { host: end.0 }),
    )
}
