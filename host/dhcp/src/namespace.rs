//! Enters a container's network namespace, only to open sockets in it.

use nix::sched::{CloneFlags, setns};
use nix::sys::stat::fstat;
use postern_kernel::Namespace;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};

/// The identity of a namespace among all others of this boot: device and inode of nsfs. The kernel can use the inode
/// again after the namespace is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
}

/// Returns the identity of an open namespace.
pub fn identity(namespace: impl AsFd) -> nix::Result<Identity> {
    let stat = fstat(namespace.as_fd())?;
    Ok(Identity { device: stat.st_dev, inode: stat.st_ino })
}

/// The service's own namespace, and the way back to it.
#[derive(Debug)]
pub struct OwnNamespace {
    namespace: Namespace,
    pub identity: Identity,
}

impl OwnNamespace {
    pub fn open() -> Result<Self, String> {
        let namespace = Namespace::current().map_err(|error| error.to_string())?;
        let identity = identity(namespace.fd()).map_err(|errno| errno.desc().to_owned())?;
        Ok(Self { namespace, identity })
    }

    /// Runs `act` in a namespace. The process has one thread, so no other code runs in the namespace.
    ///
    /// # Errors
    /// `EINVAL` for another object than a network namespace, `EPERM` without rights over the namespace, and the errors
    /// of `act`.
    pub fn visit<T, E: Display>(&self, namespace: &OwnedFd, act: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
        setns(namespace, CloneFlags::CLONE_NEWNET).map_err(|errno| errno.to_string())?;
        let done = act();
        if let Err(errno) = setns(self.namespace.fd(), CloneFlags::CLONE_NEWNET) {
            // The service must not go on in a container's namespace. After a restart, the service reads the leases from
            // files.
            postern_gate::say!("postern dhcp: cannot leave a container's namespace: {errno}");
            std::process::exit(1);
        }
        done.map_err(|error| error.to_string())
    }
}
