//! `routes` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::routes as wit;
use crate::error::Error;
use ipnet::IpNet;
use postern_types::Route;

pub(crate) fn add(link: &super::link::Link, routes: &[Route]) -> Result<(), Error> {
    let routes: Vec<_> = routes.iter().map(make_route).collect();
    let routes: Vec<_> = routes.iter().collect();
    wit::add(link, &routes).map_err(super::failure)
}

pub(crate) fn remove_connected(link: &super::link::Link, networks: &[IpNet]) -> Result<(), Error> {
    wit::remove_connected(link, &super::texts(networks)).map_err(super::failure)
}

pub(crate) fn list(link: &super::link::Link) -> Result<Vec<Route>, Error> {
    let got = wit::list(link).map_err(super::failure)?;
    got.into_iter().map(got_route).collect::<Result<Vec<_>, Error>>()
}

pub(crate) fn has(link: &super::link::Link, routes: &[Route]) -> Result<Vec<bool>, Error> {
    let routes: Vec<_> = routes.iter().map(make_route).collect();
    let routes: Vec<_> = routes.iter().collect();
    wit::has(link, &routes).map_err(super::failure)
}

fn make_route(value: &Route) -> wit::Route {
    let made = wit::Route::new(&value.dst.to_string());
    if let Some(value) = value.gateway {
        made.set_gateway(&value.to_string());
    }
    if let Some(value) = value.source {
        made.set_source(&value.to_string());
    }
    if let Some(value) = value.mtu {
        made.set_mtu(value);
    }
    if let Some(value) = value.advmss {
        made.set_advmss(value);
    }
    if let Some(value) = value.priority {
        made.set_priority(value);
    }
    if let Some(value) = value.table {
        made.set_table(value);
    }
    if let Some(value) = value.scope {
        made.set_scope(value);
    }
    made
}

#[allow(clippy::needless_pass_by_value, reason = "it is dropped here")]
fn got_route(got: wit::Route) -> Result<Route, Error> {
    Ok(Route {
        dst: super::read(&got.destination())?,
        gateway: super::maybe(got.gateway().as_deref())?,
        priority: got.priority(),
        ..Route::default()
    })
}
