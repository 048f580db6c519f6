//! The one error of this crate.

use nix::libc;
use std::io;

/// The reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The kernel refused, and may have explained the reason.
    #[error("{}", io::Error::from_raw_os_error(*errno))]
    Refused {
        /// errno(3).
        errno: i32,
        /// The kernel's own text (extended acknowledgement, `NLMSGERR_ATTR_MSG`).
        explanation: Option<String>,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The deadline passed.
    #[error("the kernel's answer took too long")]
    Late,
    /// The kernel took only a part of the request.
    #[error("the kernel took only a part of the request")]
    Partial,
    /// The answer does not consist of whole messages.
    #[error("the kernel's answer is malformed")]
    Malformed,
    /// The caller could not read an object.
    #[error("the kernel's answer can't be understood")]
    NotUnderstood,
    /// The socket's buffer ran over.
    #[error("the kernel's answer was lost")]
    Lost,
    /// A datagram was longer than the buffer, and is lost. The buffer now has room for such a datagram.
    #[error("the kernel's answer of {0} bytes is too long")]
    TooLong(usize),
    /// There are more objects than the caller allows.
    #[error("there are more than {0}")]
    TooMany(usize),
    /// Other processes kept changing the list.
    #[error("the list keeps changing while it is read")]
    Changing,
}

impl NetlinkError {
    /// True if the kernel had no room for an object or for an answer. An object can grow while the list is read.
    pub(crate) fn is_short_of_room(&self) -> bool {
        match self {
            Self::Refused { errno, .. } => matches!(*errno, libc::EMSGSIZE | libc::ENOBUFS),
            Self::System(error) => error.raw_os_error() == Some(libc::ENOBUFS),
            Self::Lost => true,
            _ => false,
        }
    }
}
