//! `link` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::LinkInfo;

pub(crate) type Link = postern_types::Handle;

pub(crate) fn attributes(link: &Link) -> Result<LinkInfo, Error> {
    super::ask(postern_types::ops::Link::Attributes { link: *link })
}

pub(crate) fn up(link: &Link) -> Result<(), Error> {
    super::ask(postern_types::ops::Link::Up { link: *link })
}

pub(crate) fn delete(link: &Link) -> Result<(), Error> {
    super::ask(postern_types::ops::Link::Delete { link: *link })
}

pub(crate) fn own() -> Result<Option<Link>, Error> {
    let reply: Option<LinkInfo> = super::ask(postern_types::ops::Link::Own)?;
    Ok(reply.map(|reply| reply.handle))
}
