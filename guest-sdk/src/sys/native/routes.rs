//! `routes` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use ipnet::IpNet;
use postern_types::Route;

pub(crate) fn add(link: &super::link::Link, routes: &[Route]) -> Result<(), Error> {
    super::ask(postern_types::ops::Routes::Add { link: *link, routes: routes.to_vec() })
}

pub(crate) fn remove_connected(link: &super::link::Link, networks: &[IpNet]) -> Result<(), Error> {
    super::ask(postern_types::ops::Routes::RemoveConnected { link: *link, networks: networks.to_vec() })
}

pub(crate) fn list(link: &super::link::Link) -> Result<Vec<Route>, Error> {
    super::ask(postern_types::ops::Routes::List { link: *link })
}

pub(crate) fn has(link: &super::link::Link, routes: &[Route]) -> Result<Vec<bool>, Error> {
    super::ask(postern_types::ops::Routes::Has { link: *link, routes: routes.to_vec() })
}
