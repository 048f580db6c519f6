//! The attachment's own link as a macvlan, stacked on a granted one.

use crate::error::Error;
use crate::link::Link;
use crate::parent::Parent;
use crate::sys::{self, host};
use postern_types::{LinkInfo, Mac, MacvlanMode};

#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, ops},
};

/// How the link is to be made. What isn't called here isn't imported either.
#[derive(Debug)]
pub struct Options(sys::MacvlanOptions);

impl Options {
    /// The parent's MTU, a random, locally administered address, and the kernel's queue.
    pub fn new(mode: MacvlanMode) -> Self {
        Self(sys::macvlan_options(mode))
    }

    /// In bytes; `None` leaves it as it is.
    #[must_use]
    pub fn mtu(self, mtu: Option<u32>) -> Self {
        if let Some(mtu) = mtu {
            host!(component: self.0.set_mtu(mtu), fake: self.0.mtu.set(Some(mtu)));
        }
        self
    }

    /// Link-layer address; `None` leaves it as it is.
    #[must_use]
    pub fn mac(self, mac: Option<Mac>) -> Self {
        if let Some(mac) = mac {
            host!(component: self.0.set_mac(&mac.to_string()), fake: self.0.mac.set(Some(mac)));
        }
        self
    }

    /// Frames that wait to be broadcast; `None` leaves it as it is.
    #[must_use]
    pub fn broadcast_queue(self, length: Option<u32>) -> Self {
        if let Some(length) = length {
            host!(component: self.0.set_broadcast_queue(length), fake: self.0.queue.set(Some(length)));
        }
        self
    }
}

/// The link, and what the kernel said of it when it was made or found.
#[derive(Debug)]
pub struct Macvlan {
    /// The link.
    pub link: Link,
    /// Its attributes.
    pub attributes: LinkInfo,
    /// Its mode; `None` if it has none of the known ones.
    pub mode: Option<MacvlanMode>,
}

/// Makes the link in the container, named `CNI_IFNAME`, down.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if the container has a link of that name.
pub fn create(parent: &Parent, options: &Options) -> Result<Macvlan, Error> {
    host!(
        component: sys::macvlan::create(&parent.0, &options.0).map(sys::macvlan_link).map_err(sys::failure),
        fake: ask!(
            ops::Macvlan::Create {
                parent: parent.0,
                mode: options.0.mode,
                mtu: options.0.mtu.get(),
                mac: options.0.mac.get(),
                queue: options.0.queue.get(),
            },
            Reply::Macvlan(made) => sys::macvlan_link(made)
        ),
    )
}

/// Finds the attachment's link; `None` if it is gone or is no macvlan.
pub fn find() -> Result<Option<Macvlan>, Error> {
    host!(
        component: Ok(sys::macvlan::find().map_err(sys::failure)?.map(sys::macvlan_link)),
        fake: ask!(ops::Macvlan::Find, Reply::MaybeMacvlan(found) => found.map(sys::macvlan_link)),
    )
}
