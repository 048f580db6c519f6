//! The attachment's own link in a VRF of the container, which the operator's configuration names.

use crate::error::Error;
use crate::link::Link;
use crate::sys;

/// Puts the own link into the VRF of this name, which is made if it is not there. Routes and addresses go along.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`]: the name is another link's, the VRF has another table, or the link
/// has a master.
pub fn join(link: &Link, name: &str, table: Option<u32>) -> Result<(), Error> {
    sys::vrf::join(&link.0, name, table)
}

/// Compares the VRF that the own link is in with the one of this name.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check(name: &str) -> Result<(), Error> {
    sys::vrf::check(name)
}

/// Takes the own link out of its VRF. It is success if it is in none.
pub fn leave() -> Result<(), Error> {
    sys::vrf::leave()
}
