//! A lock of the routing tables of one container. Two attachments may look for a free table at once. With the lock, the
//! second attachment sees the choice of the first.
//!
//! The lock is on a file of Postern, not on the file of the namespace. Root in the container can open the namespace's
//! file, and could hold its lock for ever. The number of files is fixed, so containers that end leave no files.
//! Containers that share a file wait for each other.

use crate::dir::OpenMode;
use crate::error::Result;
use crate::files::Directory;
use std::fs::File;
use std::path::Path;
use std::time::Instant;

const SUBDIRECTORY: &str = "routing";
/// The number of files.
const FILES: u64 = 64;

/// The lock, held until dropped.
#[derive(Debug)]
pub struct RoutingLock {
    _file: File,
}

impl RoutingLock {
    /// Waits for the lock of the network namespace with this cookie.
    pub fn take(root: &Path, netns_cookie: u64, deadline: Instant) -> Result<Self> {
        let name = format!("{:02x}", netns_cookie % FILES);
        let directory = Directory::make_state(root, SUBDIRECTORY)?;
        directory.locked(&name, OpenMode::ChangeOrCreate(0o600), deadline).map(|file| Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::tests::Scratch;
    use std::time::Duration;

    #[test]
    fn one_at_a_time_for_each_namespace() {
        let scratch = Scratch::new();
        let root = &scratch.path("state");
        std::fs::create_dir(root).unwrap();
        let soon = || Instant::now() + Duration::from_millis(20);
        let held = RoutingLock::take(root, 7, soon()).unwrap();
        assert!(matches!(RoutingLock::take(root, 7, soon()), Err(crate::StateError::Locked { .. })));
        RoutingLock::take(root, 8, soon()).unwrap();
        drop(held);
        RoutingLock::take(root, 7, soon()).unwrap();
        for cookie in 0..1000 {
            RoutingLock::take(root, cookie, soon()).unwrap();
        }
        assert_eq!(std::fs::read_dir(root.join(SUBDIRECTORY)).unwrap().count(), 64);
    }
}
