//! The attachment's own link as a macvlan, stacked on a granted link.

use crate::error::Error;
use crate::link::Link;
use crate::parent::Parent;
use crate::sys;
use postern_types::{LinkInfo, Mac, MacvlanMode};

/// The settings for a new link. A setter that the plugin doesn't call is not imported.
#[derive(Debug)]
pub struct Options(sys::macvlan::Options);

impl Options {
    /// Makes options with the parent's MTU, a random, locally administered address, and the kernel's default for
    /// [`Self::broadcast_queue`].
    pub fn new(mode: MacvlanMode) -> Self {
        Self(sys::macvlan::Options::new(mode))
    }

    /// Sets the MTU in bytes; `None` changes nothing.
    #[must_use]
    pub fn mtu(self, mtu: Option<u32>) -> Self {
        if let Some(mtu) = mtu {
            self.0.set_mtu(mtu);
        }
        self
    }

    /// Sets the link-layer address; `None` changes nothing.
    #[must_use]
    pub fn mac(self, mac: Option<Mac>) -> Self {
        if let Some(mac) = mac {
            self.0.set_mac(mac);
        }
        self
    }

    /// Sets the number of frames that may wait to be broadcast; `None` changes nothing.
    #[must_use]
    pub fn broadcast_queue(self, length: Option<u32>) -> Self {
        if let Some(length) = length {
            self.0.set_queue(length);
        }
        self
    }
}

/// The link, and its attributes from the moment when it was made or found.
#[derive(Debug)]
pub struct Macvlan {
    /// The link.
    pub link: Link,
    /// The link's attributes.
    pub attributes: LinkInfo,
    /// The link's mode; `None` for an unknown mode.
    pub mode: Option<MacvlanMode>,
}

/// Makes the link in the container, named `CNI_IFNAME`. The link is down.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if the container has a link with this name.
pub fn create(parent: &Parent, options: &Options) -> Result<Macvlan, Error> {
    sys::macvlan::create(&parent.0, &options.0)
}

/// Finds the attachment's link; `None` if it is gone or is no macvlan.
pub fn find() -> Result<Option<Macvlan>, Error> {
    sys::macvlan::find()
}
