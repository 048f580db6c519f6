//! Open files that keep a namespace alive: the namespace itself, a socket that was opened in the namespace, a
//! descriptor of `/dev/net/tun`.
//!
//! Only namespaces are opened, because containers choose the files of their descriptors. A socket is copied
//! (pidfd_getfd(2)), asked for the number of its namespace, and closed.

use crate::mounts::NamespaceId;
use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::makedev;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// The number of `/dev/net/tun` (linux/miscdevice.h: the device 200 of the misc devices).
const TUN: (u32, u32) = (10, 200);

/// `KCMP_FILES` of linux/kcmp.h: the tables of open files.
const KCMP_FILES: libc::c_int = 2;

/// The object that a descriptor leads to.
#[derive(Debug)]
pub(crate) enum Lead {
    /// A namespace of any kind.
    Namespace(NamespaceId),
    /// A socket.
    Socket,
    /// An open `/dev/net/tun`.
    Tun,
    /// An object that keeps no namespace alive.
    Nothing,
}

/// Returns the object of a descriptor in `/proc/PID/fd`. `nsfs` is the device of namespaces. This function never waits
/// for a file system.
pub(crate) fn lead(path: &Path, nsfs: u64) -> io::Result<Lead> {
    let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE | StatxFlags::INO)?;
    if makedev(found.stx_dev_major.into(), found.stx_dev_minor.into()) == nsfs {
        return Ok(Lead::Namespace((nsfs, found.stx_ino)));
    }
    Ok(match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::Socket => Lead::Socket,
        FileType::CharacterDevice if (found.stx_rdev_major, found.stx_rdev_minor) == TUN => Lead::Tun,
        _ => Lead::Nothing,
    })
}

/// The open files of one process, to be copied.
#[derive(Debug)]
pub(crate) struct OpenFiles(OwnedFd);

impl OpenFiles {
    pub(crate) fn of(process: u32) -> io::Result<Self> {
        let process = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(Errno::ESRCH)?;
        Ok(Self(pidfd_open(process, PidfdFlags::empty())?))
    }

    /// Asks a socket or an open `/dev/net/tun` for the namespace that it keeps alive, or for the namespace's number.
    ///
    /// # Errors
    /// The errors of pidfd_getfd(2): `EPERM` if this process may not inspect the other process. The errors of
    /// `question`: for the namespace of a socket, `EPERM` without `CAP_NET_ADMIN` over the namespace.
    pub(crate) fn ask<T>(&self, number: u32, question: fn(OwnedFd) -> io::Result<T>) -> io::Result<T> {
        let number = i32::try_from(number).map_err(|_| Errno::EBADF)?;
        let copy = pidfd_getfd(&self.0, number, PidfdGetfdFlags::empty());
        // The descriptor was closed meanwhile, and its number may belong to another file.
        copy.map_err(io::Error::from).and_then(question).map_err(|error| match error.raw_os_error() {
            Some(libc::EBADF | libc::ENOTSOCK) => Errno::ENOENT.into(),
            _ => error,
        })
    }
}

/// The kinds of namespaces that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamespaceKind {
    /// A network namespace.
    Network,
    /// A mount namespace.
    Mounts,
    /// Any other kind.
    Other,
}

/// Returns the kind of an open namespace; `ENOTTY` if the file is no namespace. The name in `/proc/PID/fd` is not
/// enough: a mounted namespace has the path of its mount.
#[allow(unsafe_code, reason = "ioctl(2) has no safe form")]
pub(crate) fn kind_of(namespace: &File) -> io::Result<NamespaceKind> {
    // SAFETY: the request takes no argument, and touches no memory of this process.
    let kind = unsafe { libc::ioctl(namespace.as_raw_fd(), libc::NS_GET_NSTYPE as _) };
    Ok(match Errno::result(kind)? {
        libc::CLONE_NEWNET => NamespaceKind::Network,
        libc::CLONE_NEWNS => NamespaceKind::Mounts,
        _ => NamespaceKind::Other,
    })
}

/// True if a thread has another table of open files than its process; `ENOSYS` in a kernel without kcmp(2).
#[allow(unsafe_code, reason = "kcmp(2) has no safe form")]
pub(crate) fn has_own_files(process: u32, thread: u32) -> io::Result<bool> {
    // SAFETY: the call takes numbers, and touches no memory of this process.
    let compared = unsafe { libc::syscall(libc::SYS_kcmp, process, thread, KCMP_FILES, 0, 0) };
    Ok(Errno::result(compared)? != 0)
}
