//! Routes through the attachment's own link, in the container's namespace.

use crate::error::Error;
use crate::link::Link;
use crate::sys::{self, host, in_parts};
use ipnet::IpNet;
use postern_types::Route;

#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, ops},
};

/// Adds the routes in order, and stops at the first refusal.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] for a route that is there already.
pub fn add(link: &Link, routes: &[Route]) -> Result<(), Error> {
    host!(
        component: {
            let resources: Vec<_> = routes.iter().map(resource).collect();
            let borrowed: Vec<_> = resources.iter().collect();
            sys::routes::add(&link.0, &borrowed).map_err(sys::failure)
        },
        fake: sys::done(ops::Routes::Add { link: link.0, routes: routes.to_vec() }),
    )
}

/// Removes the routes that the kernel made for these prefixes when the addresses were added.
pub fn remove_connected(link: &Link, networks: &[IpNet]) -> Result<(), Error> {
    host!(
        component: sys::routes::remove_connected(&link.0, &sys::texts(networks)).map_err(sys::failure),
        fake: sys::done(ops::Routes::RemoveConnected { link: link.0, networks: networks.to_vec() }),
    )
}

/// Reads the main table's routes through the link: destination, gateway and priority.
pub fn list(link: &Link) -> Result<Vec<Route>, Error> {
    host!(
        component: sys::routes::list(&link.0).map_err(sys::failure)?.iter().map(value).collect(),
        fake: ask!(ops::Routes::List { link: link.0 }, Reply::Routes(routes) => routes),
    )
}

/// Tells of each route whether it is among those that [`list`] reads: by destination, and by gateway and priority where
/// the given route has them. The container may have any number of others.
pub fn has(link: &Link, routes: &[Route]) -> Result<Vec<bool>, Error> {
    in_parts(routes, |part| {
        host!(
            component: {
                let resources: Vec<_> = part.iter().map(resource).collect();
                let borrowed: Vec<_> = resources.iter().collect();
                sys::routes::has(&link.0, &borrowed).map_err(sys::failure)
            },
            fake: ask!(ops::Routes::Has { link: link.0, routes: part.to_vec() }, Reply::Present(present) => present),
        )
    })
}

/// Returns a route to `dst` without other attributes.
pub fn to(dst: IpNet) -> Route {
    Route { dst, gateway: None, source: None, mtu: None, advmss: None, priority: None, table: None, scope: None }
}

#[cfg(target_arch = "wasm32")]
fn resource(route: &Route) -> sys::routes::Route {
    let resource = sys::routes::Route::new(&route.dst.to_string());
    if let Some(gateway) = route.gateway {
        resource.set_gateway(&gateway.to_string());
    }
    if let Some(source) = route.source {
        resource.set_source(&source.to_string());
    }
    if let Some(mtu) = route.mtu {
        resource.set_mtu(mtu);
    }
    if let Some(advmss) = route.advmss {
        resource.set_advmss(advmss);
    }
    if let Some(priority) = route.priority {
        resource.set_priority(priority);
    }
    if let Some(table) = route.table {
        resource.set_table(table);
    }
    if let Some(scope) = route.scope {
        resource.set_scope(scope);
    }
    resource
}

#[cfg(target_arch = "wasm32")]
fn value(resource: &sys::routes::Route) -> Result<Route, Error> {
    let gateway = match resource.gateway() {
        Some(text) => Some(sys::read(&text)?),
        None => None,
    };
    Ok(Route { gateway, priority: resource.priority(), ..to(sys::read(&resource.destination())?) })
}
