//! Source routing: what the attachment's own addresses send leaves by the attachment's own link.

use crate::error::Error;
use crate::link::Link;
use crate::sys::{self, host};
use postern_types::RouteSource;

#[cfg(not(target_arch = "wasm32"))]
use postern_types::ops;

/// Gives each source its rule: with `table` to that table, and otherwise to a table of its own with the link's routes,
/// which leave the main table. With `hints` the main table keeps the routes to the link's own networks.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::InvalidArgument`]: the address, gateway or table is not the attachment's.
pub fn apply(link: &Link, sources: &[RouteSource], table: Option<u32>, hints: bool) -> Result<(), Error> {
    host!(
        component: {
            let sources: Vec<_> = sources.iter().map(wire).collect();
            sys::source_routes::apply(&link.0, &sources, table, hints).map_err(sys::failure)
        },
        fake: sys::done(ops::SourceRoutes::Apply { link: link.0, sources: sources.to_vec(), table, hints }),
    )
}

/// Compares rules and routes with the host's record.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check() -> Result<(), Error> {
    host!(
        component: sys::source_routes::check().map_err(sys::failure),
        fake: sys::done(ops::SourceRoutes::Check),
    )
}

/// Removes the rules, and puts the link's routes back. It is success if nothing is there.
pub fn remove() -> Result<(), Error> {
    host!(
        component: sys::source_routes::remove().map_err(sys::failure),
        fake: sys::done(ops::SourceRoutes::Remove),
    )
}

#[cfg(target_arch = "wasm32")]
fn wire(source: &RouteSource) -> sys::source_routes::Source {
    sys::source_routes::Source {
        address: source.address.to_string(),
        gateway: source.gateway.map(|gateway| gateway.to_string()),
    }
}
