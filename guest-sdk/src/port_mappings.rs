//! Ports of the node that lead to the attachment's own addresses.

use crate::error::Error;
use crate::sys;
use postern_types::{Forward, NatSources};
use std::net::IpAddr;

/// Makes the rules for these forwards to these addresses. Each IP version has at most one address.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`]: another container uses a port.
pub fn ensure(addresses: &[IpAddr], forwards: &[Forward], masquerade: NatSources) -> Result<(), Error> {
    sys::port_mappings::ensure(addresses, forwards, masquerade)
}

/// Compares the rules with the expected rules.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check(addresses: &[IpAddr], forwards: &[Forward], masquerade: NatSources) -> Result<(), Error> {
    sys::port_mappings::check(addresses, forwards, masquerade)
}

/// Removes the attachment's rules. The call succeeds if there is nothing to remove.
pub fn remove() -> Result<(), Error> {
    sys::port_mappings::remove()
}
