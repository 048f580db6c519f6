//! Routes through the attachment's own link, in the container's namespace.

use crate::error::Error;
use crate::link::Link;
use crate::sys::{self, in_parts};
use ipnet::IpNet;
use postern_types::Route;

/// Adds the routes in order, and stops at the first refusal.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] for an existing route.
pub fn add(link: &Link, routes: &[Route]) -> Result<(), Error> {
    sys::routes::add(&link.0, routes)
}

/// Removes the routes that the kernel made for these prefixes when the addresses were added.
pub fn remove_connected(link: &Link, networks: &[IpNet]) -> Result<(), Error> {
    sys::routes::remove_connected(&link.0, networks)
}

/// Reads the main table's routes through the link: destination, gateway and priority.
pub fn list(link: &Link) -> Result<Vec<Route>, Error> {
    sys::routes::list(&link.0)
}

/// Tells for each route whether [`list`] returns the route. The comparison covers the destination, and gateway and
/// priority if the given route has them. The container may have any number of other routes.
pub fn has(link: &Link, routes: &[Route]) -> Result<Vec<bool>, Error> {
    in_parts(routes, |part| sys::routes::has(&link.0, part))
}

/// Returns a route to `dst` without other attributes.
pub fn to(dst: IpNet) -> Route {
    Route { dst, gateway: None, source: None, mtu: None, advmss: None, priority: None, table: None, scope: None }
}
