//! The attachment's own link as a dummy.

use crate::error::Error;
use crate::link::Link;
use crate::sys;
use postern_types::LinkInfo;

/// The link, and its attributes from the moment when it was made.
#[derive(Debug)]
pub struct Dummy {
    /// The link.
    pub link: Link,
    /// The link's attributes.
    pub attributes: LinkInfo,
}

/// Makes the link in the container, named `CNI_IFNAME`, down, with a random, locally administered address.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if the container has a link with this name.
pub fn create() -> Result<Dummy, Error> {
    sys::dummy::create().map(|(link, attributes)| Dummy { link: Link(link), attributes })
}
