//! A check, before anything changes in the kernel, that an ADD can write its files.

use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, statvfs};
use postern_cni::{Error, code};
use std::path::Path;

/// Fails with code 5 if the file system of a directory, or of its nearest existing parent, is read-only, full, or out
/// of inodes (statvfs(3)).
pub fn writable(directory: &Path) -> Result<(), Error> {
    let Some(present) = directory.ancestors().find(|path| crate::places::is_there(path)) else { return Ok(()) };
    // If statvfs fails, the later write reports the error.
    let Ok(disk) = statvfs(present) else { return Ok(()) };
    let errno = if disk.flags().contains(FsFlags::ST_RDONLY) {
        Errno::EROFS
    } else if disk.blocks() > 0 && disk.blocks_free() == 0 || disk.files() > 0 && disk.files_free() == 0 {
        Errno::ENOSPC
    } else {
        return Ok(());
    };
    let reason = errno.desc();
    Err(Error::new(code::IO_FAILURE, format!("no lease can be kept in {}: {reason}", directory.display()))
        .with_details("nothing was changed; free space or make the file system writable, and try again"))
}
