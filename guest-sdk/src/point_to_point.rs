//! The host end of a routed pair.

use crate::error::Error;
use crate::sys;
use crate::veth::HostEnd;

/// For each address of the attachment, puts its gateway on the host end, and routes the address through the host end.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::InvalidArgument`] for an address without gateway.
pub fn ensure(end: &HostEnd) -> Result<(), Error> {
    sys::point_to_point::ensure(&end.0)
}
