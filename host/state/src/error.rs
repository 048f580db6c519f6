//! The one error type of this crate.

use nix::errno::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// True if an error of a system call says nothing about the object of the call. The same call can succeed at the next
/// attempt.
#[must_use]
pub fn is_passing(errno: Errno) -> bool {
    use Errno::{EINTR, EIO, EMFILE, ENFILE, ENOBUFS, ENOMEM};
    matches!(errno, EINTR | EIO | EMFILE | ENFILE | ENOBUFS | ENOMEM)
}

/// Result with [`StateError`].
pub type Result<T> = std::result::Result<T, StateError>;

/// The reasons why an operation on leases or records failed.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The lock was still held by another process at the deadline: try again later (CNI error code 11).
    #[error("lock {}: not free before the deadline; {holder}; try again", .path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process that holds the lock, or how to find it.
        holder: String,
    },
    /// The search for a free address was not done at the deadline: try again later (CNI error code 11).
    #[error("{}: the search for a free address takes too long for this run; try again", .path.display())]
    LongSearch {
        /// The network's directory of leases.
        path: PathBuf,
    },
    /// Another user could have changed this directory or file: nothing in it was used.
    #[error("refusing {}: {reason}", .path.display())]
    Untrusted {
        /// The refused object.
        path: PathBuf,
        /// The defect, and how to mend it.
        reason: String,
    },
    /// host-local's `dataDir` is relative: it would lead to a different place for each caller.
    #[error(
        "ipam.dataDir {} is relative, and would be another directory for each caller; give an absolute path",
        .path.display()
    )]
    Relative {
        /// The directory, as it was given.
        path: PathBuf,
    },
    /// The request can't be satisfied; the text is the native plugin's.
    #[error("{0}")]
    Refused(String),
    /// No address is left in a range set; the text is the native plugin's.
    #[error("{0}")]
    Exhausted(String),
    /// Another version wrote the record, and this version can't read its format.
    #[error(
        "{}: format version {version}, written by {writer}, is unknown to this version; use {writer}, or move the file away \
         to give up its effects",
        .path.display()
    )]
    OtherVersion {
        /// The record.
        path: PathBuf,
        /// The record's format version.
        version: u64,
        /// The program and version that wrote the record.
        writer: String,
    },
    /// A line of the record is well-formed JSON, but this version doesn't know its content.
    #[error(
        "record {}: line {line} is unknown to this version ({detail}); use the version that wrote it, or move the file away \
         to give up its effects",
        .path.display()
    )]
    UnknownEffect {
        /// The record.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The decoder's text.
        detail: String,
    },
    /// The record couldn't be read and was moved away; the next attempt finds no record.
    #[error(
        "record {} is corrupt: {detail}; kept as {}; its effects must be removed by hand",
        .path.display(), .aside.display()
    )]
    Corrupt {
        /// The record's earlier path.
        path: PathBuf,
        /// The record's present path.
        aside: PathBuf,
        /// The defect.
        detail: String,
    },
    /// A system call failed.
    #[error("{operation} {}: {source}", .path.display())]
    Io {
        /// The failed operation, e.g. `open`.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl StateError {
    pub(crate) fn io(operation: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Self::Io { operation, path: path.as_ref().to_owned(), source: source.into() }
    }

    pub(crate) fn untrusted(path: &Path, reason: impl ToString) -> Self {
        Self::Untrusted { path: path.to_owned(), reason: reason.to_string() }
    }

    /// Returns the error of the system call that failed.
    pub(crate) fn errno(&self) -> Option<Errno> {
        let Self::Io { source, .. } = self else { return None };
        source.raw_os_error().map(Errno::from_raw)
    }

    /// True if the object at the name can never be a file of Postern. The object is a directory, a link or a socket, or
    /// a file in Postern's own directory that this process may not open.
    pub(crate) fn is_no_file(&self) -> bool {
        matches!(self, Self::Io { operation: "open", .. })
            && matches!(self.errno(), Some(Errno::EISDIR | Errno::ELOOP | Errno::ENXIO | Errno::EACCES))
    }

    /// True for the failure of a system call that can succeed at the next attempt.
    pub(crate) fn is_passing(&self) -> bool {
        self.errno().is_some_and(is_passing)
    }

    /// Adds the native plugin's prefix for a failure in one range set.
    #[must_use]
    pub fn in_set(self, number: usize) -> Self {
        let prefixed = |text| format!("failed to allocate for range {number}: {text}");
        match self {
            Self::Refused(text) => Self::Refused(prefixed(text)),
            Self::Exhausted(text) => Self::Exhausted(prefixed(text)),
            other => other,
        }
    }

    /// True if the file system is read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.errno() == Some(Errno::EROFS)
    }
}
