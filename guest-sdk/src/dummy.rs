//! The attachment's own link as a dummy.

use crate::error::Error;
use crate::link::Link;
#[cfg(target_arch = "wasm32")]
use crate::sys;
use crate::sys::host;
use postern_types::LinkInfo;

#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, ops},
};

/// The link, and what the kernel said of it when it was made.
#[derive(Debug)]
pub struct Dummy {
    /// The link.
    pub link: Link,
    /// Its attributes.
    pub attributes: LinkInfo,
}

/// Makes the link in the container, named `CNI_IFNAME`, down, with a random, locally administered address.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if the container has a link of that name.
pub fn create() -> Result<Dummy, Error> {
    host!(
        component: {
            let made = sys::dummy::create().map_err(sys::failure)?;
            Ok(Dummy { link: Link(made.link), attributes: sys::link_info(made.attributes) })
        },
        fake: ask!(ops::Dummy::Create, Reply::Made(made) => Dummy { link: Link(made.handle), attributes: made }),
    )
}
