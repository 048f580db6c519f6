//! `parent` on the build machine.
//!
//! Written by `cargo xtask surface` from `wit/`, which is to be changed in place of this.

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
