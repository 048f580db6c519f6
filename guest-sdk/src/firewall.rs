//! The node's packet filter, for the attachment's own addresses and for its bridge.

use crate::error::Error;
use crate::sys::{self, host};
use ipnet::IpNet;
use postern_types::IngressPolicy;

#[cfg(not(target_arch = "wasm32"))]
use postern_types::ops;

/// Lets traffic from these addresses be forwarded, and the answers to it. Each must be the attachment's own.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Denied`] for an address that is not the attachment's.
pub fn admit(addresses: &[IpNet]) -> Result<(), Error> {
    host!(
        component: sys::firewall::admit(&sys::texts(addresses)).map_err(sys::failure),
        fake: sys::done(ops::Firewall::Admit { addresses: addresses.to_vec() }),
    )
}

/// Isolates the bridge that the attachment's host end is a port of. The rules stay when the attachment goes.
pub fn isolate(ingress: IngressPolicy) -> Result<(), Error> {
    host!(
        component: sys::firewall::isolate(sys::ingress(ingress)).map_err(sys::failure),
        fake: sys::done(ops::Firewall::Isolate { ingress }),
    )
}

/// Compares the rules for these addresses, and those of the bridge, with the expected ones.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check(addresses: &[IpNet]) -> Result<(), Error> {
    host!(
        component: sys::firewall::check(&sys::texts(addresses)).map_err(sys::failure),
        fake: sys::done(ops::Firewall::Check { addresses: addresses.to_vec() }),
    )
}

/// Removes what admits the attachment's addresses. It succeeds if there is nothing to remove.
pub fn remove() -> Result<(), Error> {
    host!(
        component: sys::firewall::remove().map_err(sys::failure),
        fake: sys::done(ops::Firewall::Remove),
    )
}
