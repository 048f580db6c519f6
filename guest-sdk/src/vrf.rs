//! The attachment's own link in a VRF of the container. The operator's configuration names the VRF.

use crate::error::Error;
use crate::link::Link;
use crate::sys;

/// Puts the own link into the VRF `name`. A missing VRF is made. The link's routes and addresses move with the link.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`]: another link is called `name`, the VRF has another table, or the
/// link has a master.
pub fn join(link: &Link, name: &str, table: Option<u32>) -> Result<(), Error> {
    sys::vrf::join(&link.0, name, table)
}

/// Compares the VRF of the own link with the VRF `name`.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check(name: &str) -> Result<(), Error> {
    sys::vrf::check(name)
}

/// Takes the own link out of its VRF. The call succeeds if the link is in no VRF.
pub fn leave() -> Result<(), Error> {
    sys::vrf::leave()
}
