//! The attachment's own link as a VLAN of a granted link.

use crate::error::Error;
use crate::link::Link;
use crate::parent::Parent;
#[cfg(target_arch = "wasm32")]
use crate::sys;
use crate::sys::host;
use postern_types::{LinkInfo, VlanId};

#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, VlanInfo, ops},
};

/// The link, and what the kernel said of it when it was made or found.
#[derive(Debug)]
pub struct Vlan {
    /// The link.
    pub link: Link,
    /// Its attributes.
    pub attributes: LinkInfo,
    /// The VLAN, 0 to 4095.
    pub id: VlanId,
}

/// Makes the link in the container, named `CNI_IFNAME`, down. `id` is 0 to 4094. `mtu` is in bytes; `None` takes the
/// parent's.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if the container has a link of that name, or if another link has this
/// VLAN of the parent.
pub fn create(parent: &Parent, id: VlanId, mtu: Option<u32>) -> Result<Vlan, Error> {
    host!(
        component: {
            let made = sys::vlan::create(&parent.0, id, mtu).map_err(sys::failure)?;
            Ok(Vlan { link: Link(made.link), attributes: sys::link_info(made.attributes), id })
        },
        fake: ask!(
            ops::Vlan::Create { parent: parent.0, id, mtu },
            Reply::Made(made) => Vlan { link: Link(made.handle), attributes: made, id }
        ),
    )
}

/// Finds the attachment's link; `None` if it is gone or is no VLAN.
pub fn find() -> Result<Option<Vlan>, Error> {
    host!(
        component: {
            let found = sys::vlan::find().map_err(sys::failure)?;
            Ok(found.map(|found| Vlan {
                link: Link(found.link),
                attributes: sys::link_info(found.attributes),
                id: found.id,
            }))
        },
        fake: ask!(ops::Vlan::Find, Reply::MaybeVlan(found) => found.map(|VlanInfo { link, id }| Vlan {
            link: Link(link.handle),
            attributes: link,
            id,
        })),
    )
}
