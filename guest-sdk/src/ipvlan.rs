//! The attachment's own link as an ipvlan on a granted link.

use crate::error::Error;
use crate::link::Link;
use crate::parent::Parent;
#[cfg(target_arch = "wasm32")]
use crate::sys;
use crate::sys::host;
use postern_types::{IpvlanMode, LinkInfo};

#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{IpvlanInfo, Reply, ops},
};

/// The link, and what the kernel said of it when it was made or found.
#[derive(Debug)]
pub struct Ipvlan {
    /// The link.
    pub link: Link,
    /// Its attributes.
    pub attributes: LinkInfo,
    /// Its mode; `None` if it has none of the known ones.
    pub mode: Option<IpvlanMode>,
}

/// Makes the link in the container, named `CNI_IFNAME`, down. `mtu` is in bytes; `None` takes the parent's.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if the container has a link of that name, or if the parent has links of
/// another mode.
pub fn create(parent: &Parent, mode: IpvlanMode, mtu: Option<u32>) -> Result<Ipvlan, Error> {
    host!(
        component: {
            let made = sys::ipvlan::create(&parent.0, sys::ipvlan_mode(mode), mtu).map_err(sys::failure)?;
            Ok(Ipvlan { link: Link(made.link), attributes: sys::link_info(made.attributes), mode: Some(mode) })
        },
        fake: ask!(
            ops::Ipvlan::Create { parent: parent.0, mode, mtu },
            Reply::Made(made) => Ipvlan { link: Link(made.handle), attributes: made, mode: Some(mode) }
        ),
    )
}

/// Finds the attachment's link; `None` if it is gone or is no ipvlan.
pub fn find() -> Result<Option<Ipvlan>, Error> {
    host!(
        component: {
            let found = sys::ipvlan::find().map_err(sys::failure)?;
            Ok(found.map(|found| Ipvlan {
                mode: found.mode.map(sys::ipvlan_mode_of),
                link: Link(found.link),
                attributes: sys::link_info(found.attributes),
            }))
        },
        fake: ask!(ops::Ipvlan::Find, Reply::MaybeIpvlan(found) => found.map(|IpvlanInfo { link, mode }| Ipvlan {
            link: Link(link.handle),
            attributes: link,
            mode,
        })),
    )
}
