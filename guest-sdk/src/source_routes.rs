//! Source routing: what the attachment's own addresses send leaves by the attachment's own link.

use crate::error::Error;
use crate::link::Link;
use crate::sys;
use postern_types::RouteSource;

/// Gives each source its rule: with `table` to that table, and otherwise to a table of its own with the link's routes,
/// which leave the main table. With `hints` the main table keeps the routes to the link's own networks.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::InvalidArgument`]: the address, gateway or table is not the attachment's.
pub fn apply(link: &Link, sources: &[RouteSource], table: Option<u32>, hints: bool) -> Result<(), Error> {
    sys::source_routes::apply(&link.0, sources, table, hints)
}

/// Compares rules and routes with the host's record.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check() -> Result<(), Error> {
    sys::source_routes::check()
}

/// Removes the rules, and puts the link's routes back. It is success if nothing is there.
pub fn remove() -> Result<(), Error> {
    sys::source_routes::remove()
}
