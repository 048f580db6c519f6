//! `source-routes` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::RouteSource;

pub(crate) fn apply(
    link: &super::link::Link,
    sources: &[RouteSource],
    table: Option<u32>,
    hints: bool,
) -> Result<(), Error> {
    super::ask(postern_types::ops::SourceRoutes::Apply { link: *link, sources: sources.to_vec(), table, hints })
}

pub(crate) fn check() -> Result<(), Error> {
    super::ask(postern_types::ops::SourceRoutes::Check)
}

pub(crate) fn remove() -> Result<(), Error> {
    super::ask(postern_types::ops::SourceRoutes::Remove)
}
