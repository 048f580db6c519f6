//! The node's packet filter, for the attachment's own addresses and for its bridge.

use crate::error::Error;
use crate::sys;
use ipnet::IpNet;
use postern_types::IngressPolicy;

/// Makes rules that forward the traffic from these addresses, and the answers to it. Each address must be the
/// attachment's own.
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

/// Compares the rules for these addresses, and the rules of the bridge, with the expected rules.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check(addresses: &[IpNet]) -> Result<(), Error> {
    sys::firewall::check(addresses)
}

/// Removes the rules that admit the attachment's addresses. The call succeeds if there is nothing to remove.
pub fn remove() -> Result<(), Error> {
    sys::firewall::remove()
}
