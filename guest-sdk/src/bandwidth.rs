//! Limits of the rate of the attachment's own traffic.

use crate::error::Error;
use crate::sys;
use postern_types::{LinkInfo, RateLimit};

/// Limits what goes to the container (`ingress`) and what comes from it (`egress`), at least one of them. Returns the link
/// of the host that keeps the second limit.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`]: somebody else limits the host end.
pub fn limit(ingress: Option<RateLimit>, egress: Option<RateLimit>) -> Result<Option<LinkInfo>, Error> {
    sys::bandwidth::limit(ingress, egress)
}

/// Compares the limits with the expected ones.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check(ingress: Option<RateLimit>, egress: Option<RateLimit>) -> Result<(), Error> {
    sys::bandwidth::check(ingress, egress)
}

/// Removes the limits. It succeeds if there is nothing to remove.
pub fn remove() -> Result<(), Error> {
    sys::bandwidth::remove()
}
