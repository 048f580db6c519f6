//! The node's packet filter, for the attachment's own addresses and for its bridge.

use crate::error::Error;
use crate::sys;
use ipnet::IpNet;
use postern_types::IngressPolicy;

/// Lets traffic from these addresses be forwarded, and the answers to it. Each must be the attachment's own.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Denied`] for an address that is not the attachment's.
pub fn admit(addresses: &[IpNet]) -> Result<(), Error> {
    sys::firewall::admit(addresses)
}

/// Isolates the bridge that the attachment's host end is a port of. The rules stay when the attachment goes.
pub fn isolate(ingress: IngressPolicy) -> Result<(), Error> {
    sys::firewall::isolate(ingress)
}

/// Compares the rules for these addresses, and those of the bridge, with the expected ones.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check(addresses: &[IpNet]) -> Result<(), Error> {
    sys::firewall::check(addresses)
}

/// Removes what admits the attachment's addresses. It succeeds if there is nothing to remove.
pub fn remove() -> Result<(), Error> {
    sys::firewall::remove()
}
