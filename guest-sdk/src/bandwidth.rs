//! Limits of the rate of the attachment's own traffic.

use crate::error::Error;
use crate::sys;
use postern_types::{LinkInfo, RateLimit};

/// Limits the traffic to the container (`ingress`), the traffic from the container (`egress`), or both. Returns the
/// host's link (ifb) that limits the traffic from the container.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`]: another program limits the host end.
pub fn limit(ingress: Option<RateLimit>, egress: Option<RateLimit>) -> Result<Option<LinkInfo>, Error> {
    sys::bandwidth::limit(ingress, egress)
}

/// Compares the limits with the expected limits.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check(ingress: Option<RateLimit>, egress: Option<RateLimit>) -> Result<(), Error> {
    sys::bandwidth::check(ingress, egress)
}

/// Removes the limits. The call succeeds if there is nothing to remove.
pub fn remove() -> Result<(), Error> {
    sys::bandwidth::remove()
}
