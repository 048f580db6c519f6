//! `dhcp` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::dhcp as wit;
use crate::error::Error;
use postern_types::{DhcpLease, Dns, LeaseGrant, Route};

pub(crate) fn acquire() -> Result<DhcpLease, Error> {
    let got = wit::acquire().map_err(super::failure)?;
    got_lease(got)
}

pub(crate) fn check() -> Result<DhcpLease, Error> {
    let got = wit::check().map_err(super::failure)?;
    got_lease(got)
}

pub(crate) fn release() -> Result<(), Error> {
    wit::release().map_err(super::failure)
}

pub(crate) fn status() -> Result<(), Error> {
    wit::status().map_err(super::failure)
}

fn got_leased_address(got: wit::LeasedAddress) -> Result<LeaseGrant, Error> {
    Ok(LeaseGrant { address: super::read(&got.address)?, gateway: super::maybe(got.gateway.as_deref())? })
}

fn got_leased_route(got: wit::LeasedRoute) -> Result<Route, Error> {
    Ok(Route {
        dst: super::read(&got.destination)?,
        gateway: super::maybe(got.gateway.as_deref())?,
        scope: got.scope,
        priority: got.priority,
        ..Route::default()
    })
}

fn got_name_servers(got: wit::NameServers) -> Dns {
    Dns { nameservers: got.nameservers, domain: got.domain, search: got.search, ..Dns::default() }
}

fn got_lease(got: wit::Lease) -> Result<DhcpLease, Error> {
    Ok(DhcpLease {
        addresses: got.addresses.into_iter().map(got_leased_address).collect::<Result<Vec<_>, Error>>()?,
        routes: got.routes.into_iter().map(got_leased_route).collect::<Result<Vec<_>, Error>>()?,
        dns: got_name_servers(got.dns),
        mtu: got.mtu,
        server: super::maybe(got.server.as_deref())?,
        seconds: got.seconds,
    })
}
