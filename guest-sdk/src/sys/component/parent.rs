//! `parent` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::parent as wit;
use crate::error::Error;
use postern_types::LinkInfo;

pub(crate) use wit::Parent;

pub(crate) fn attributes(parent: &Parent) -> Result<LinkInfo, Error> {
    let got = parent.attributes().map_err(super::failure)?;
    Ok(super::link_info(got))
}

pub(crate) fn find(name: &str, in_container: bool) -> Result<Parent, Error> {
    wit::find(name, in_container).map_err(super::failure)
}
