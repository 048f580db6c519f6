//! The attachment's own link as an ipvlan on a granted link.

use crate::error::Error;
use crate::link::Link;
use crate::parent::Parent;
use crate::sys;
use postern_types::{IpvlanMode, LinkInfo};

/// The link, and its attributes from the moment when it was made or found.
#[derive(Debug)]
pub struct Ipvlan {
    /// The link.
    pub link: Link,
    /// The link's attributes.
    pub attributes: LinkInfo,
    /// The link's mode; `None` for an unknown mode.
    pub mode: Option<IpvlanMode>,
}

/// Makes the link `CNI_IFNAME` in the container. The new link is down. `mtu` is in bytes; `None` takes the parent's
/// MTU.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if the container has a link with this name, or if the parent has
/// links of another mode.
pub fn create(parent: &Parent, mode: IpvlanMode, mtu: Option<u32>) -> Result<Ipvlan, Error> {
    let (link, attributes) = sys::ipvlan::create(&parent.0, mode, mtu)?;
    Ok(Ipvlan { link: Link(link), attributes, mode: Some(mode) })
}

/// Finds the attachment's link; `None` if it is gone or is no ipvlan.
pub fn find() -> Result<Option<Ipvlan>, Error> {
    sys::ipvlan::find()
}
