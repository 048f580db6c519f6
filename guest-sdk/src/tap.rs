//! The attachment's own link as a tap, for a program in the container.

use crate::error::Error;
use crate::link::Link;
use crate::sys::{self, host};
use postern_types::{LinkInfo, TapSettings};

#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, ops},
};

/// The link, and what the kernel said of it when it was made.
#[derive(Debug)]
pub struct Tap {
    /// The link.
    pub link: Link,
    /// Its attributes.
    pub attributes: LinkInfo,
}

/// Makes the link in the container, named `CNI_IFNAME`, down.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if the container has a link of that name.
pub fn create(settings: &TapSettings) -> Result<Tap, Error> {
    host!(
        component: {
            let made = sys::tap::create(&sys::tap_options(settings)).map_err(sys::failure)?;
            Ok(Tap { link: Link(made.link), attributes: sys::link_info(made.attributes) })
        },
        fake: ask!(
            ops::Tap::Create { settings: settings.clone() },
            Reply::Made(made) => Tap { link: Link(made.handle), attributes: made }
        ),
    )
}

/// Makes the link a port of a bridge in the container.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::NotFound`]: there is no link of that name.
pub fn join(link: &Link, bridge: &str) -> Result<(), Error> {
    host!(
        component: sys::tap::join(&link.0, bridge).map_err(sys::failure),
        fake: sys::done(ops::Tap::Join { link: link.0, bridge: bridge.to_owned() }),
    )
}
