//! Limits of the rate of the attachment's own traffic.

use crate::error::Error;
use crate::sys::{self, host};
use postern_types::{LinkInfo, RateLimit};

#[cfg(not(target_arch = "wasm32"))]
use postern_types::{Reply, ops};

/// Limits what goes to the container (`ingress`) and what comes from it (`egress`), at least one of them. Returns the link
/// of the host that keeps the second limit.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`]: somebody else limits the host end.
pub fn limit(ingress: Option<RateLimit>, egress: Option<RateLimit>) -> Result<Option<LinkInfo>, Error> {
    host!(
        component: {
            let link = sys::bandwidth::limit(ingress.map(wire), egress.map(wire)).map_err(sys::failure)?;
            Ok(link.map(sys::link_info))
        },
        fake: match crate::fake::call(&ops::Bandwidth::Limit { ingress, egress }.into())? {
            Reply::MaybeLink(link) => Ok(link),
            other => Err(other.unexpected().into()),
        },
    )
}

/// Compares the limits with the expected ones.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check(ingress: Option<RateLimit>, egress: Option<RateLimit>) -> Result<(), Error> {
    host!(
        component: sys::bandwidth::check(ingress.map(wire), egress.map(wire)).map_err(sys::failure),
        fake: sys::done(ops::Bandwidth::Check { ingress, egress }),
    )
}

/// Removes the limits. It succeeds if there is nothing to remove.
pub fn remove() -> Result<(), Error> {
    host!(
        component: sys::bandwidth::remove().map_err(sys::failure),
        fake: sys::done(ops::Bandwidth::Remove),
    )
}

#[cfg(target_arch = "wasm32")]
fn wire(limit: RateLimit) -> sys::bandwidth::RateLimit {
    sys::bandwidth::RateLimit { rate: limit.rate, burst: limit.burst }
}
