//! `source-routes` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::source_routes as wit;
use crate::error::Error;
use postern_types::RouteSource;

pub(crate) fn apply(
    link: &super::link::Link,
    sources: &[RouteSource],
    table: Option<u32>,
    hints: bool,
) -> Result<(), Error> {
    wit::apply(link, &sources.iter().map(wire_source).collect::<Vec<_>>(), table, hints).map_err(super::failure)
}

pub(crate) fn check() -> Result<(), Error> {
    wit::check().map_err(super::failure)
}

pub(crate) fn remove() -> Result<(), Error> {
    wit::remove().map_err(super::failure)
}

fn wire_source(value: &RouteSource) -> wit::Source {
    wit::Source { address: value.address.to_string(), gateway: value.gateway.map(|value| value.to_string()) }
}
