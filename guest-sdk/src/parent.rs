//! Links that others are stacked on, and that the operator's configuration names.

use crate::error::Error;
use crate::sys::{self, host};
use postern_types::LinkInfo;

#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, ops},
};

/// A granted link. It can be read, and handed to what makes a link on it.
#[derive(Debug)]
pub struct Parent(pub(crate) sys::Parent);

/// Looks a granted link up, on the host or in the container. The empty name is the link of the default route there.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::NotFound`]: there is no such link, or no default route.
pub fn find(name: &str, in_container: bool) -> Result<Parent, Error> {
    host!(
        component: sys::parent::find(name, in_container).map(Parent).map_err(sys::failure),
        fake: ask!(
            ops::Parent::Find { name: name.to_owned(), in_container },
            Reply::Parent(link) => Parent(link.handle)
        ),
    )
}

impl Parent {
    /// Reads the link again.
    pub fn attributes(&self) -> Result<LinkInfo, Error> {
        host!(
            component: self.0.attributes().map(sys::link_info).map_err(sys::failure),
            fake: ask!(ops::Link::Attributes { link: self.0 }, Reply::Link(link) => link),
        )
    }
}
