//! Addresses on the attachment's own link.

use crate::error::Error;
use crate::link::Link;
use crate::sys::{self, in_parts};
use ipnet::IpNet;
use postern_types::Address;

/// Adds the addresses. IPAM or `prevResult` must have given each of them to this attachment.
pub fn add(link: &Link, addresses: &[IpNet]) -> Result<(), Error> {
    sys::addresses::add(&link.0, addresses)
}

/// Reads the link's addresses.
pub fn list(link: &Link) -> Result<Vec<Address>, Error> {
    sys::addresses::list(&link.0)
}

/// Tells for each address whether the link has it. The link may have any number of other addresses.
pub fn has(link: &Link, addresses: &[IpNet]) -> Result<Vec<bool>, Error> {
    in_parts(addresses, |part| sys::addresses::has(&link.0, part))
}

/// Waits at most 5 seconds until no IPv6 address of the link is tentative. A link without IPv6 addresses needs no call.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if another node has the address.
pub fn settle(link: &Link) -> Result<(), Error> {
    sys::addresses::settle(&link.0)
}
