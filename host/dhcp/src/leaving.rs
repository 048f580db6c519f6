//! The process that removes what belongs to the service when that has ended: its socket, and the file with its process
//! ID. It also does so after a kill. It is there only if there is something to remove; a socket of systemd stays.
//!
//! It knows the files from the start. Nothing is said to it: it waits for the end of the service.
#![allow(unsafe_code, reason = "fork(2) has no safe form")]

use crate::confine;
use crate::namespace::Identity;
use crate::steps::outlive_signals;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, socketpair};
use nix::sys::stat::lstat;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, unlink};
use postern_confine::{close_all_but, end_process, fork};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// A file that belongs to the service, and goes with it.
#[derive(Clone, Debug)]
pub struct Own {
    path: PathBuf,
    identity: Identity,
    /// The time of its last change, which a later file of the same inode does not have.
    changed: (i64, i64),
}

impl Own {
    /// Remembers a file by its inode: another service may have put its own there later.
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

/// The process, seen from the service.
#[derive(Debug)]
pub struct Remover {
    /// Its other end sees when the service has ended.
    line: OwnedFd,
    pid: Pid,
}

impl Remover {
    /// Forks the process; `None` if nothing belongs to the service. The calling one must have a single thread.
    ///
    /// # Errors
    /// The kernel gives no process or no socket.
    pub fn start(own: &[Own]) -> Result<Option<Self>, String> {
        if own.is_empty() {
            return Ok(None);
        }
        let words = |errno: Errno| errno.desc().to_owned();
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC).map_err(words)?;
        // SAFETY: the process has one thread, and the child never returns.
        match unsafe { fork() }.map_err(words)? {
            ForkResult::Parent { child } => Ok(Some(Self { line: ours, pid: child })),
            ForkResult::Child => {
                drop(ours);
                run(&theirs, own)
            }
        }
    }

    /// Has the files removed, and waits for that.
    pub fn end(self) {
        drop(self.line);
        let _ = waitpid(self.pid, None);
    }
}

fn run(line: &OwnedFd, own: &[Own]) -> ! {
    if let Err(error) = prepare(line, own) {
        postern_gate::say!("postern dhcp: the process that removes the socket cannot be confined: {error}");
    } else {
        while recv(line.as_raw_fd(), &mut [0], MsgFlags::empty()) == Err(Errno::EINTR) {}
        own.iter().for_each(Own::remove);
    }
    end_process(0)
}

fn prepare(line: &OwnedFd, own: &[Own]) -> Result<(), String> {
    close_all_but(&[2, line.as_raw_fd()]).map_err(|error| error.to_string())?;
    outlive_signals();
    let _ = prctl::set_name(c"dhcp files");
    let directories = own.iter().filter_map(|own| own.path.parent());
    confine::remover(directories).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service that was started again has its socket there already, perhaps with the inode of the one before.
    #[test]
    fn the_file_of_a_later_service_stays() {
        let directory = std::env::temp_dir().join(format!("postern-dhcp-leaving-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("file");
        std::fs::write(&path, "one").unwrap();
        let own = Own::new(path.clone()).unwrap();
        for _ in 0..20 {
            std::fs::remove_file(&path).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
            std::fs::write(&path, "other").unwrap();
            own.remove();
            assert!(path.exists());
        }
        Own::new(path.clone()).unwrap().remove();
        assert!(!path.exists());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
