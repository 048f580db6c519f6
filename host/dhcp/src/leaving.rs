//! The process that removes the service's own files after the service's end: the socket, and the file with the process
//! ID. The process also removes the files after a kill of the service. It is started only if the service has its own
//! files. A socket of systemd stays.
//!
//! The process knows the files from the start. It gets no messages: it only waits for the end of the service.

use crate::confine;
use crate::namespace::Identity;
use crate::process::{Task, TaskProcess};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use nix::sys::stat::lstat;
use nix::unistd::unlink;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// A file that belongs to the service, and is removed with it.
#[derive(Clone, Debug)]
pub struct OwnFile {
    path: PathBuf,
    identity: Identity,
    /// The time of the file's last change. A later file with the same inode has another time.
    changed: (i64, i64),
}

impl OwnFile {
    /// Remembers a file by its inode: another service may have put its own file at the path later.
    pub fn new(path: PathBuf) -> Option<Self> {
        let stat = lstat(&path).ok()?;
        let identity = Identity { device: stat.st_dev, inode: stat.st_ino };
        Some(Self { path, identity, changed: (stat.st_mtime, stat.st_mtime_nsec) })
    }

    fn remove(&self) {
        let now = Self::new(self.path.clone());
        if now.is_some_and(|now| (now.identity, now.changed) == (self.identity, self.changed)) {
            let _ = unlink(&self.path);
        }
    }
}

const TASK: Task = Task { words: "the process that removes the socket", name: c"dhcp files", inherits: &[2] };

/// Forks the process; `None` if the service has no files. The calling process must have a single thread.
pub fn start(own: &[OwnFile]) -> Result<Option<TaskProcess>, String> {
    if own.is_empty() {
        return Ok(None);
    }
    let directories = own.iter().filter_map(|own| own.path.parent());
    let work = |line: &UnixStream| {
        while recv(line.as_raw_fd(), &mut [0], MsgFlags::empty()) == Err(Errno::EINTR) {}
        own.iter().for_each(OwnFile::remove);
    };
    TASK.start(|| confine::remover(directories), work).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service that was started again may already have its new socket, perhaps with the inode of the old socket.
    #[test]
    fn the_file_of_a_later_service_stays() {
        let directory = std::env::temp_dir().join(format!("postern-dhcp-leaving-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("file");
        std::fs::write(&path, "one").unwrap();
        let own = OwnFile::new(path.clone()).unwrap();
        for _ in 0..20 {
            std::fs::remove_file(&path).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
            std::fs::write(&path, "other").unwrap();
            own.remove();
            assert!(path.exists());
        }
        OwnFile::new(path.clone()).unwrap().remove();
        assert!(!path.exists());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
