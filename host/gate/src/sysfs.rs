//! Devices of the node, as `/sys` shows them in this process's own namespace.

use postern_kernel::Link;
use postern_types::LinkName;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The devices of all PCI buses.
pub const PCI: &str = "/sys/bus/pci/devices";

const VIRTIO: &str = "/sys/bus/virtio/devices";

/// Returns the path below `/sys/devices` of a link in this process's own namespace.
pub fn sys_path(name: &LinkName) -> Option<PathBuf> {
    let led = leads_to(&Path::new("/sys/class/net").join(OsStr::from_bytes(name.as_ref())))?;
    let below = led.strip_prefix("../..").ok()?;
    below.starts_with("devices").then(|| Path::new("/sys").join(below))
}

/// Returns the target of a link below `/sys`.
#[expect(clippy::disallowed_methods, reason = "only the kernel makes files below /sys, and nothing is opened")]
pub fn leads_to(path: &Path) -> Option<PathBuf> {
    path.read_link().ok()
}

/// True if this path below `/sys` exists.
#[expect(clippy::disallowed_methods, reason = "only the kernel makes files below /sys, and nothing is opened")]
pub fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Returns the PCI device of a link, directly or through its virtio device.
pub fn pci_of(link: &Link) -> Option<String> {
    let device = link.device.as_ref()?;
    pci_of_device(&device.bus, &device.name)
}

/// Like [`pci_of`], for a driver's device by its bus and name.
pub fn pci_of_device(bus: &str, name: &str) -> Option<String> {
    match bus {
        "pci" => Some(name.to_owned()),
        // `../../../devices/pci0000:00/0000:00:03.0/virtio0`
        "virtio" => {
            let led = leads_to(&Path::new(VIRTIO).join(name))?;
            let above = led.parent()?.file_name()?.to_str()?;
            is_there(&Path::new(PCI).join(above)).then(|| above.to_owned())
        }
        _ => None,
    }
}
