//! Addresses on the attachment's own link.

use crate::error::Error;
use crate::link::Link;
use crate::sys::{self, host, in_parts};
use ipnet::IpNet;
use postern_types::Address;

#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, ops},
};

/// Adds the addresses. IPAM or `prevResult` must have given each of them to this attachment.
pub fn add(link: &Link, addresses: &[IpNet]) -> Result<(), Error> {
    host!(
        component: sys::addresses::add(&link.0, &sys::texts(addresses)).map_err(sys::failure),
        fake: sys::done(ops::Addresses::Add { link: link.0, addresses: addresses.to_vec() }),
    )
}

/// Reads the link's addresses.
pub fn list(link: &Link) -> Result<Vec<Address>, Error> {
    host!(
        component: sys::addresses::list(&link.0).map_err(sys::failure).and_then(sys::addresses),
        fake: ask!(ops::Addresses::List { link: link.0 }, Reply::Addresses(addresses) => addresses),
    )
}

/// Tells of each address whether the link has it. It may have any number of others.
pub fn has(link: &Link, addresses: &[IpNet]) -> Result<Vec<bool>, Error> {
    in_parts(addresses, |part| {
        host!(
            component: sys::addresses::has(&link.0, &sys::texts(part)).map_err(sys::failure),
            fake: ask!(
                ops::Addresses::Has { link: link.0, addresses: part.to_vec() },
                Reply::Present(present) => present
            ),
        )
    })
}

/// Waits, 5 seconds at most, until no IPv6 address of the link is tentative. A link without IPv6 addresses needs no
/// call.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if another node has the address.
pub fn settle(link: &Link) -> Result<(), Error> {
    host!(
        component: sys::addresses::settle(&link.0).map_err(sys::failure),
        fake: sys::done(ops::Addresses::Settle { link: link.0 }),
    )
}
