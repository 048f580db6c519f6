//! `dummy` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::dummy as wit;
use crate::error::Error;
use postern_types::LinkInfo;

pub(crate) fn create() -> Result<(super::link::Link, LinkInfo), Error> {
    let got = wit::create().map_err(super::failure)?;
    Ok(got_made(got))
}

fn got_made(got: wit::Made) -> (super::link::Link, LinkInfo) {
    (got.link, super::link_info(got.attributes))
}
