//! The attachment's own link as a tap, for a program in the container.

use crate::error::Error;
use crate::link::Link;
use crate::sys;
use postern_types::{LinkInfo, TapSettings};

/// The link, and its attributes from the moment when it was made.
#[derive(Debug)]
pub struct Tap {
    /// The link.
    pub link: Link,
    /// The link's attributes.
    pub attributes: LinkInfo,
}

/// Makes the link in the container, with the name `CNI_IFNAME`. The link is down.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if the container has a link with this name.
pub fn create(settings: &TapSettings) -> Result<Tap, Error> {
    sys::tap::create(settings).map(|(link, attributes)| Tap { link: Link(link), attributes })
}

/// Makes the link a port of a bridge in the container.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::NotFound`]: there is no link named `bridge`.
pub fn join(link: &Link, bridge: &str) -> Result<(), Error> {
    sys::tap::join(&link.0, bridge)
}
