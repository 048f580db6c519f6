//! The attachment's own link as a VLAN of a granted link.

use crate::error::Error;
use crate::link::Link;
use crate::parent::Parent;
use crate::sys;
use postern_types::{LinkInfo, VlanId};

/// The link, and its attributes from the moment when it was made or found.
#[derive(Debug)]
pub struct Vlan {
    /// The link.
    pub link: Link,
    /// The link's attributes.
    pub attributes: LinkInfo,
    /// The VLAN, 0 to 4095.
    pub id: VlanId,
}

/// Makes the link in the container, with the name `CNI_IFNAME`. The link is down. `id` is 0 to 4094. `mtu` is in bytes;
/// `None` takes the parent's MTU.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if the container has a link with this name, or if another link has
/// this VLAN of the parent.
pub fn create(parent: &Parent, id: VlanId, mtu: Option<u32>) -> Result<Vlan, Error> {
    let (link, attributes) = sys::vlan::create(&parent.0, id, mtu)?;
    Ok(Vlan { link: Link(link), attributes, id })
}

/// Finds the attachment's link; `None` if it is gone or is no VLAN.
pub fn find() -> Result<Option<Vlan>, Error> {
    sys::vlan::find()
}
