//! Links of the node that are moved into the container, and back.

use crate::error::Error;
use crate::link::Link;
use crate::sys::{self, host};
use postern_types::{DeviceKey, LinkInfo};

#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, ops},
};

/// A device that is now the attachment's link, with the kernel's data about it.
#[derive(Debug)]
pub struct TakenDevice {
    /// The link.
    pub link: Link,
    /// Its attributes.
    pub attributes: LinkInfo,
}

/// Looks up a granted device of the host; `None` if a driver of user space has it.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::NotFound`]: no such device, or it has no driver.
pub fn find(by: DeviceKey, value: &str) -> Result<Option<LinkInfo>, Error> {
    host!(
        component: Ok(sys::device::find(sys::device_key(by), value).map_err(sys::failure)?.map(sys::link_info)),
        fake: ask!(ops::Device::Find { by, value: value.to_owned() }, Reply::Device(found) => found),
    )
}

/// Moves the device into the container, names it `CNI_IFNAME`, and sets it up.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if the container has a link of that name.
pub fn take(by: DeviceKey, value: &str) -> Result<TakenDevice, Error> {
    host!(
        component: sys::device::take(sys::device_key(by), value).map(sys::taken).map_err(sys::failure),
        fake: ask!(
            ops::Device::Take { by, value: value.to_owned() },
            Reply::Taken(taken) => TakenDevice { link: Link(taken.handle), attributes: taken }
        ),
    )
}

/// Moves the attachment's device back to the host. It is success if the device is there already.
pub fn give_back() -> Result<(), Error> {
    host!(
        component: sys::device::give_back().map_err(sys::failure),
        fake: sys::done(ops::Device::GiveBack),
    )
}
