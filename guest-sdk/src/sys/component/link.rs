//! `link` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::link as wit;
use crate::error::Error;
use postern_types::LinkInfo;

pub(crate) use wit::Link;

pub(crate) fn attributes(link: &Link) -> Result<LinkInfo, Error> {
    let got = link.attributes().map_err(super::failure)?;
    Ok(super::link_info(got))
}

pub(crate) fn up(link: &Link) -> Result<(), Error> {
    link.up().map_err(super::failure)
}

pub(crate) fn delete(link: &Link) -> Result<(), Error> {
    link.delete().map_err(super::failure)
}

pub(crate) fn own() -> Result<Option<Link>, Error> {
    wit::own().map_err(super::failure)
}
