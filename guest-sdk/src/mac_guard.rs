//! Protection against a container that sends with a foreign link-layer address.

use crate::error::Error;
use crate::sys;
use crate::veth::HostEnd;
use postern_types::Mac;

/// Makes rules so that only frames with this source address pass the host end.
pub fn ensure(end: &HostEnd, mac: Mac) -> Result<(), Error> {
    sys::mac_guard::ensure(&end.0, mac)
}

/// Compares the rules with the expected rules.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check(end: &HostEnd, mac: Mac) -> Result<(), Error> {
    sys::mac_guard::check(&end.0, mac)
}

/// Removes the attachment's rules. The host first sets the guarded port down. The call succeeds if there is nothing to
/// remove.
pub fn remove() -> Result<(), Error> {
    sys::mac_guard::remove()
}
