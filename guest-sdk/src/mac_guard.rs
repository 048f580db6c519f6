//! Protection against a container that sends with a foreign link-layer address.

use crate::error::Error;
use crate::sys::{self, host};
use crate::veth::HostEnd;
use postern_types::Mac;

#[cfg(not(target_arch = "wasm32"))]
use postern_types::ops;

/// Makes rules so that only frames with this source address pass the host end.
pub fn ensure(end: &HostEnd, mac: Mac) -> Result<(), Error> {
    host!(
        component: sys::mac_guard::ensure(&end.0, &mac.to_string()).map_err(sys::failure),
        fake: sys::done(ops::MacGuard::Ensure { host: end.0, mac }),
    )
}

/// Compares the rules with the expected ones.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check(end: &HostEnd, mac: Mac) -> Result<(), Error> {
    host!(
        component: sys::mac_guard::check(&end.0, &mac.to_string()).map_err(sys::failure),
        fake: sys::done(ops::MacGuard::Check { host: end.0, mac }),
    )
}

/// Removes the attachment's rules; the host sets the guarded port down before. It succeeds if there is nothing to
/// remove.
pub fn remove() -> Result<(), Error> {
    host!(
        component: sys::mac_guard::remove().map_err(sys::failure),
        fake: sys::done(ops::MacGuard::Remove),
    )
}
