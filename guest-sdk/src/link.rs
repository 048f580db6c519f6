//! The attachment's own link: the link named `CNI_IFNAME` in the container's network namespace.

use crate::error::Error;
use crate::sys;
use postern_types::LinkInfo;

/// A link that this run has a handle to. The host checks namespace, index and name at every use. For a link that was
/// deleted and made again, calls fail with [`postern_types::ErrorCode::InvalidHandle`].
#[derive(Debug)]
pub struct Link(pub(crate) sys::link::Link);

/// Looks up the attachment's link; `None` if the namespace or the link is gone.
pub fn own() -> Result<Option<Link>, Error> {
    Ok(sys::link::own()?.map(Link))
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
        sys::link::attributes(&self.0)
    }

    /// Sets the link up.
    pub fn up(&self) -> Result<(), Error> {
        sys::link::up(&self.0)
    }

    /// Deletes the link, and with it the other end of a veth, addresses and routes. The call succeeds if the link is
    /// gone.
    pub fn delete(&self) -> Result<(), Error> {
        sys::link::delete(&self.0)
    }
}
