//! Links of the node that are moved into the container, and back.

use crate::error::Error;
use crate::link::Link;
use crate::sys;
use postern_types::{DeviceKey, LinkInfo};

/// A device that is now the attachment's link, with the kernel's data about it.
#[derive(Debug)]
pub struct TakenDevice {
    /// The link.
    pub link: Link,
    /// The link's attributes.
    pub attributes: LinkInfo,
}

/// Looks up a granted device of the host; `None` if a user-space driver has the device.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::NotFound`]: the device is missing, or it has no driver.
pub fn find(by: DeviceKey, value: &str) -> Result<Option<LinkInfo>, Error> {
    sys::device::find(by, value)
}

/// Moves the device into the container, names it `CNI_IFNAME`, and sets it up.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if the container has a link named `CNI_IFNAME`.
pub fn take(by: DeviceKey, value: &str) -> Result<TakenDevice, Error> {
    sys::device::take(by, value).map(|(link, attributes)| TakenDevice { link: Link(link), attributes })
}

/// Moves the attachment's device back to the host. The call succeeds if the device is on the host already.
pub fn give_back() -> Result<(), Error> {
    sys::device::give_back()
}
