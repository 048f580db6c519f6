//! Network namespaces by path (`network_namespaces(7)`).

use crate::error::{Result, Subject, describe};
use crate::netlink::Netlink;
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::stat;
use nix::sys::statfs::{FsType, NSFS_MAGIC, PROC_SUPER_MAGIC, fstatfs, statfs};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::thread;

/// The reasons why a namespace could not be opened. The texts are the native plugins' texts, which runtimes and people
/// know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Nothing exists at the path, or the path is empty. For DEL, the namespace is then already gone.
    #[error("failed to Statfs {0:?}: {none}", none = describe(Errno::ENOENT as i32))]
    NotExist(String),
    /// The object is on a file system without namespaces. The number is `f_type` of `statfs(2)`.
    #[error("unknown FS magic on {0:?}: {1:x}")]
    NotNamespace(String, i64),
    /// The path can't be examined or opened.
    #[error("{operation} {path:?}: {message}")]
    Io {
        /// The failed step, as the native texts name it: `failed to Statfs` or `open`.
        operation: &'static str,
        /// The path as given.
        path: String,
        /// The kernel's error number.
        errno: Option<i32>,
        /// The kernel's error.
        message: String,
    },
}

/// An open network namespace. It exists at least as long as this value.
#[derive(Debug)]
pub struct Namespace {
    file: File,
    path: String,
}

/// The step before a path is opened, as the native texts name it.
const EXAMINE: &str = "failed to Statfs";

/// The path of the calling thread's network namespace.
pub(crate) const OWN: &str = "/proc/thread-self/ns/net";

fn cannot(operation: &'static str, path: &str, error: impl Into<io::Error>) -> OpenError {
    let error = error.into();
    let errno = error.raw_os_error();
    let message = errno.map_or_else(|| error.to_string(), describe);
    OpenError::Io { operation, path: path.to_owned(), errno, message }
}

fn not_namespace(path: String, magic: FsType) -> OpenError {
    #[allow(clippy::unnecessary_cast, reason = "the type of this number differs between C libraries")]
    OpenError::NotNamespace(path, magic.0 as i64)
}

impl Namespace {
    /// Opens the namespace at `path`, normally below `/run/netns` or `/proc/PID/ns/net`.
    ///
    /// The file system is examined first. So only a namespace, or another file of procfs, is ever opened.
    ///
    /// # Errors
    /// See [`OpenError`]. A namespace of another kind causes `EINVAL` only when a thread enters it.
    pub fn open(path: &str) -> std::result::Result<Self, OpenError> {
        let magic = match statfs(path) {
            Ok(status) => status.filesystem_type(),
            Err(Errno::ENOENT) => return Err(OpenError::NotExist(path.to_owned())),
            Err(errno) => return Err(cannot(EXAMINE, path, errno)),
        };
        if magic != NSFS_MAGIC && magic != PROC_SUPER_MAGIC {
            return Err(not_namespace(path.to_owned(), magic));
        }
        let file = File::open(path).map_err(|error| cannot("open", path, error))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Opens the calling thread's network namespace.
    ///
    /// # Errors
    /// [`OpenError`] if `/proc` is not mounted, or belongs to another PID namespace.
    pub fn current() -> std::result::Result<Self, OpenError> {
        let path = OWN.to_owned();
        let file = File::open(&path).map_err(|error| cannot("open", &path, error))?;
        // Only root can mount another file system at this path. So the file may be opened before it is examined.
        let magic = fstatfs(&file).map_err(|errno| cannot(EXAMINE, &path, errno))?.filesystem_type();
        if magic != NSFS_MAGIC {
            return Err(not_namespace(path, magic));
        }
        Ok(Self { file, path })
    }

    /// Takes a descriptor of this process's network namespace.
    pub(crate) fn own(descriptor: OwnedFd) -> Self {
        Self { file: descriptor.into(), path: OWN.to_owned() }
    }

    /// True if both are the same namespace: same device and inode of nsfs (`ioctl_ns(2)`).
    ///
    /// # Errors
    /// The errors of `fstat(2)`.
    pub fn same_as(&self, other: &Self) -> io::Result<bool> {
        let (own, other) = (self.file.metadata()?, other.file.metadata()?);
        Ok((own.dev(), own.ino()) == (other.dev(), other.ino()))
    }

    /// True if a path leads to another namespace: another inode of the same device, which is nsfs. Nothing is opened.
    /// False if the path leads nowhere, or to a file of another device.
    pub fn is_not_at(&self, path: &str) -> bool {
        let (Ok(own), Ok(there)) = (self.file.metadata(), stat(path)) else { return false };
        own.dev() == there.st_dev && own.ino() != there.st_ino
    }

    /// Returns the namespace's number ([`Netlink::cookie`]). A thread reads the number in the namespace, and ends.
    ///
    /// # Errors
    /// The errors of `clone(2)` and `setns(2)`: `EINVAL` if this is no network namespace, `EPERM` without
    /// `CAP_SYS_ADMIN` over the namespace.
    pub fn cookie(&self) -> Result<u64> {
        let ask = || {
            let subject = Subject { operation: "enter namespace", object: &self.path };
            setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|errno| subject.failed(errno))?;
            Netlink::open()?.cookie()
        };
        let asked = thread::scope(|scope| {
            let started = thread::Builder::new().name("cookie".to_owned()).spawn_scoped(scope, ask);
            started.map(|thread| thread.join())
        });
        let subject = Subject { operation: "enter namespace", object: &self.path };
        let answer = asked.map_err(|error| subject.failed(error))?;
        answer.unwrap_or_else(|_| Err(subject.broken("the thread that entered the namespace failed")))
    }

    /// Returns the descriptor, for messages that name a namespace (`IFLA_NET_NS_FD`).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the path by which the namespace was opened.
    pub fn path(&self) -> &str {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_errors_have_the_native_texts() {
        for path in ["/run/netns/absent", ""] {
            let error = Namespace::open(path).unwrap_err();
            assert!(matches!(error, OpenError::NotExist { .. }));
            assert_eq!(error.to_string(), format!("failed to Statfs {path:?}: no such file or directory"));
        }
        // In the private mount namespace /run is a tmpfs.
        let error = Namespace::open("/run").unwrap_err();
        assert_eq!(error, OpenError::NotNamespace("/run".to_owned(), 0x0102_1994));
        assert_eq!(error.to_string(), "unknown FS magic on \"/run\": 1021994");
        let error = Namespace::open("/proc/self/status/net").unwrap_err();
        assert!(matches!(&error, OpenError::Io { errno: Some(20), .. }), "{error:?}");
        assert_eq!(error.to_string(), "failed to Statfs \"/proc/self/status/net\": not a directory");
    }

    #[test]
    fn a_namespace_is_the_same_by_any_path() {
        let own = Namespace::current().unwrap();
        assert!(own.same_as(&Namespace::open("/proc/self/ns/net").unwrap()).unwrap());
        assert_eq!(own.path(), "/proc/thread-self/ns/net");
        for same_or_none in ["/proc/self/ns/net", "/run/netns/absent", "/proc/self/status", "/", "c1", ""] {
            assert!(!own.is_not_at(same_or_none), "{same_or_none}");
        }
        assert!(own.is_not_at("/proc/self/ns/uts"));
    }
}
