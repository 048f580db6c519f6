//! The attachment's own link: the one named `CNI_IFNAME` in the container's network namespace.

use crate::error::Error;
use crate::sys::{self, host};
use postern_types::LinkInfo;

#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, ops},
};

/// A link that this run has a handle to. The host checks namespace, index and name at every use. A link that was
/// deleted and made again is [`postern_types::ErrorCode::InvalidHandle`].
#[derive(Debug)]
pub struct Link(pub(crate) sys::Link);

/// Looks up the attachment's link; `None` if the namespace or the link is gone.
pub fn own() -> Result<Option<Link>, Error> {
    host!(
        component: Ok(sys::link::own().map_err(sys::failure)?.map(Link)),
        fake: ask!(ops::Link::Own, Reply::MaybeLink(link) => link.map(|link| Link(link.handle))),
    )
}

/// Deletes the attachment's link, if there is one: the main part of most DELs.
pub fn delete_own() -> Result<(), Error> {
    match own()? {
        Some(link) => link.delete(),
        None => Ok(()),
    }
}

impl Link {
    /// Reads the link again.
    pub fn attributes(&self) -> Result<LinkInfo, Error> {
        host!(
            component: self.0.attributes().map(sys::link_info).map_err(sys::failure),
            fake: ask!(ops::Link::Attributes { link: self.0 }, Reply::Link(link) => link),
        )
    }

    /// Sets the link up.
    pub fn up(&self) -> Result<(), Error> {
        host!(
            component: self.0.up().map_err(sys::failure),
            fake: sys::done(ops::Link::Up { link: self.0 }),
        )
    }

    /// Deletes the link, and with it the other end of a veth, addresses and routes. It succeeds if the link is gone.
    pub fn delete(&self) -> Result<(), Error> {
        host!(
            component: self.0.delete().map_err(sys::failure),
            fake: sys::done(ops::Link::Delete { link: self.0 }),
        )
    }
}
