//! The lease that the node's DHCP service keeps for this attachment.
//!
//! No function takes an argument: the host tells the service the attachment and the operator's configuration.

use crate::error::Error;
use crate::sys::{self, host};
use postern_types::DhcpLease;

#[cfg(target_arch = "wasm32")]
use postern_types::{Dns, LeaseGrant, Route};
#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, ops},
};

/// Has the service get a lease for the attachment's link, and keep it alive. The addresses become the attachment's own.
/// If the ADD fails later, the host gives the lease back.
///
/// # Errors
/// The service's own error, unchanged. [`postern_types::ErrorCode::Unsupported`] if no service answers, `InvalidArgument`
/// if the host refuses the lease, `Deadline`.
pub fn acquire() -> Result<DhcpLease, Error> {
    host!(
        component: lease(sys::dhcp::acquire().map_err(sys::failure)?),
        fake: ask!(ops::Dhcp::Acquire, Reply::Lease(lease) => lease),
    )
}

/// Returns the lease as the service has it now.
///
/// # Errors
/// As [`acquire`]. The service's own error if the lease is lost.
pub fn check() -> Result<DhcpLease, Error> {
    host!(
        component: lease(sys::dhcp::check().map_err(sys::failure)?),
        fake: ask!(ops::Dhcp::Check, Reply::Lease(lease) => lease),
    )
}

/// Has the service give the lease back. The host removes everything in the record that uses the addresses first. It
/// succeeds if there is no lease, or no service.
pub fn release() -> Result<(), Error> {
    host!(
        component: sys::dhcp::release().map_err(sys::failure),
        fake: sys::done(ops::Dhcp::Release),
    )
}

/// Asks if the service answers.
///
/// # Errors
/// [`postern_types::ErrorCode::Unsupported`]: it does not.
pub fn status() -> Result<(), Error> {
    host!(
        component: sys::dhcp::status().map_err(sys::failure),
        fake: sys::done(ops::Dhcp::Status),
    )
}

#[cfg(target_arch = "wasm32")]
fn lease(lease: sys::dhcp::Lease) -> Result<DhcpLease, Error> {
    let address = |leased: sys::dhcp::LeasedAddress| {
        Ok(LeaseGrant { address: sys::read(&leased.address)?, gateway: maybe(leased.gateway)? })
    };
    let route = |leased: sys::dhcp::LeasedRoute| {
        let to = crate::routes::to(sys::read(&leased.destination)?);
        Ok(Route { gateway: maybe(leased.gateway)?, scope: leased.scope, priority: leased.priority, ..to })
    };
    let dns = lease.dns;
    Ok(DhcpLease {
        addresses: lease.addresses.into_iter().map(address).collect::<Result<_, Error>>()?,
        routes: lease.routes.into_iter().map(route).collect::<Result<_, Error>>()?,
        dns: Dns { nameservers: dns.nameservers, domain: dns.domain, search: dns.search, options: Vec::new() },
        mtu: lease.mtu,
        server: maybe(lease.server)?,
        seconds: lease.seconds,
    })
}

#[cfg(target_arch = "wasm32")]
fn maybe(text: Option<String>) -> Result<Option<std::net::IpAddr>, Error> {
    match text {
        Some(text) => sys::read(&text).map(Some),
        None => Ok(None),
    }
}
