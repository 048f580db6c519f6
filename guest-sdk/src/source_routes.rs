//! Source routing: packets from the attachment's own addresses leave by the attachment's own link.

use crate::error::Error;
use crate::link::Link;
use crate::sys;
use postern_types::RouteSource;

/// Makes a rule for each source. With `table`, the rule leads to this table. Without `table`, each source gets its own
/// table, and the link's routes move from the main table into the source's table. With `hints`, the main table keeps
/// the routes to the link's own networks.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::InvalidArgument`]: the address, gateway or table does not belong to the
/// attachment.
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

/// Removes the rules, and puts the link's routes back. The call succeeds if there is nothing to remove.
pub fn remove() -> Result<(), Error> {
    sys::source_routes::remove()
}
