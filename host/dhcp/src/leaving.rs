//! The process that removes what belongs to the service when that has ended: its socket, and the file with its process
//! ID. It also does so after a kill. It is there only if there is something to remove; a socket of systemd stays.
//!
//! It knows the files from the start. Nothing is said to it: it waits for the end of the service.
#![allow(unsafe_code, reason = "fork(2) has no safe form; _exit(2)")]

use crate::confine;
use crate::namespace::Identity;
use crate::steps::outlive_signals;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, socketpair};
use nix::sys::stat::lstat;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, unlink};
use postern_confine::close_all_but;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// A file that belongs to the service, and goes with it.
#[derive(Clone, Debug)]
pub struct Own {
    path: PathBuf,
    identity: Identity,
}

impl Own {
    /// Remembers a file by its inode: another service may have put its own there later.
    pub fn new(path: PathBuf) -> Option<Self> {
        let stat = lstat(&path).ok()?;
        Some(Self { path, identity: Identity { device: stat.st_dev, inode: stat.st_ino } })
    }

    fn remove(&self) {
        let still = lstat(&self.path)
            .is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (self.identity.device, self.identity.inode));
        if still {
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
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(0) }
}

fn prepare(line: &OwnedFd, own: &[Own]) -> Result<(), String> {
    close_all_but(&[2, line.as_raw_fd()]).map_err(|error| error.to_string())?;
    outlive_signals();
    let _ = prctl::set_name(c"dhcp files");
    let directories = own.iter().filter_map(|own| own.path.parent());
    confine::remover(directories).map_err(|error| error.to_string())
}
