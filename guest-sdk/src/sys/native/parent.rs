//! `parent` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::LinkInfo;

pub(crate) type Parent = postern_types::Handle;

pub(crate) fn attributes(parent: &Parent) -> Result<LinkInfo, Error> {
    super::ask(postern_types::ops::Link::Attributes { link: *parent })
}

pub(crate) fn find(name: &str, in_container: bool) -> Result<Parent, Error> {
    let reply: LinkInfo = super::ask(postern_types::ops::Parent::Find { name: name.to_owned(), in_container })?;
    Ok(reply.handle)
}
