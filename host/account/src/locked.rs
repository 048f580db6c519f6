//! Tests if a process holds the lock of a file, without keeping the lock.

use postern_state::{Dir, OpenMode};
use std::fs::TryLockError;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns device and inode of a file whose `flock(2)` a process holds; `None` if the lock is free, or if it can't be
/// tested.
#[must_use]
pub fn locked(path: &Path) -> Option<(u64, u64)> {
    let file = Dir::open(path.parent()?).ok()?.file(path.file_name()?.to_str()?, OpenMode::Read).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() {
        return None;
    }
    // The lock is shared, and released at once. Another process that wants the lock waits for microseconds.
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            None
        }
        Err(TryLockError::WouldBlock) => Some((meta.dev(), meta.ino())),
        Err(TryLockError::Error(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_lock_is_seen_and_not_kept() {
        let path = std::env::temp_dir().join(format!("postern-locked-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        assert_eq!(locked(&path), None);
        file.lock().unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!(locked(&path), Some((meta.dev(), meta.ino())));
        file.unlock().unwrap();
        assert_eq!(locked(&path), None);
        file.try_lock().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(locked(&path), None);
    }
}
