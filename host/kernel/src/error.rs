//! The only error type of this crate.

use crate::netlink::ANSWER_WITHIN;
use nix::errno::Errno;
use postern_netlink::NetlinkError;
use std::fmt;
use std::io;

/// Result with [`KernelError`].
pub type Result<T> = std::result::Result<T, KernelError>;

/// The kernel answered with an error, or could not be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} {object}: {message}")]
pub struct KernelError {
    /// The failed operation: `create bridge`, `add address`, …
    pub operation: &'static str,
    /// The object of the operation: a link, an address, a path.
    pub object: String,
    /// The kernel's error number; `None` if the failure was not an answer of the kernel.
    pub errno: Option<i32>,
    /// The failure: the error number's text in lower case, as the native plugins print it. The kernel's own explanation
    /// follows, if there is one (extended acknowledgement, `NLMSGERR_ATTR_MSG`).
    pub message: String,
    /// True if the answer did not come in time, or was lost.
    pub is_lost: bool,
}

/// Errors of this process or of the node, which say nothing about the object. A later attempt may succeed.
const PASSING: [Errno; 6] = [Errno::ENOMEM, Errno::ENOBUFS, Errno::EMFILE, Errno::ENFILE, Errno::EINTR, Errno::EIO];

impl KernelError {
    /// True if the kernel answered with this error number.
    pub fn is(&self, errno: Errno) -> bool {
        self.errno == Some(errno as i32)
    }

    /// True if a later attempt may succeed: the request or its answer was lost, or memory or descriptors were short.
    pub fn is_passing(&self) -> bool {
        self.is_lost || PASSING.iter().any(|errno| self.is(*errno))
    }
}

/// An operation and its object, for the text of an error.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub operation: &'static str,
    pub object: &'a dyn fmt::Display,
}

impl Subject<'_> {
    /// Makes the error for an error number from the kernel, with the kernel's explanation if there is one.
    pub fn refused(self, errno: i32, explanation: Option<&str>) -> KernelError {
        let message = match explanation {
            Some(explanation) => format!("{}: {explanation}", describe(errno)),
            None => describe(errno),
        };
        KernelError { errno: Some(errno), ..self.broken(message) }
    }

    /// Makes the error for a failed system call.
    pub fn failed(self, error: impl Into<io::Error>) -> KernelError {
        let error = error.into();
        match error.raw_os_error() {
            Some(errno) => self.refused(errno, None),
            None => self.broken(error.to_string()),
        }
    }

    /// Makes the error for a request without an answer.
    pub fn unanswered(self, error: NetlinkError) -> KernelError {
        match error {
            NetlinkError::Refused { errno, explanation } => self.refused(errno, explanation.as_deref()),
            NetlinkError::System(error) => self.failed(error),
            NetlinkError::Changing => self.refused(Errno::EAGAIN as i32, Some(&error.to_string())),
            NetlinkError::Late => KernelError {
                is_lost: true,
                ..self.broken(format!("the kernel's answer took more than {} seconds", ANSWER_WITHIN.as_secs()))
            },
            NetlinkError::Lost => KernelError { is_lost: true, ..self.broken(error.to_string()) },
            other => self.broken(other.to_string()),
        }
    }

    /// Makes the error for a request that can't be sent to the kernel; the caller sees `EINVAL`.
    pub fn invalid(self, why: &str) -> KernelError {
        self.refused(Errno::EINVAL as i32, Some(why))
    }

    /// Makes the error for a failure other than an answer of the kernel.
    pub fn broken(self, message: impl Into<String>) -> KernelError {
        KernelError {
            operation: self.operation,
            object: self.object.to_string(),
            errno: None,
            message: message.into(),
            is_lost: false,
        }
    }
}

/// Returns `None` for errors with these numbers. Such errors say that the object is missing, or exists already.
pub(crate) fn unless<T>(numbers: &[Errno], result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if numbers.iter().any(|errno| error.is(*errno)) => Ok(None),
        result => result.map(Some),
    }
}

/// Returns the text of an error number as Go programs print it, because people search for this text. It is glibc's text
/// of strerror(3) with a small first letter.
#[must_use]
pub fn describe(errno: i32) -> String {
    if let Some(text) = other_in_musl(Errno::from_raw(errno)) {
        return text.to_owned();
    }
    let text = io::Error::from_raw_os_error(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        // `RFS specific error` begins with an abbreviation and stays.
        Some(first) if !letters.as_str().starts_with(char::is_uppercase) => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}

/// Returns glibc's text of an error number if musl's `strerror(3)` has another text. Only numbers that the kernel can
/// answer here are listed.
fn other_in_musl(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::EIO => "input/output error",
        Errno::ECHILD => "no child processes",
        Errno::ENOMEM => "cannot allocate memory",
        Errno::EBUSY => "device or resource busy",
        Errno::EXDEV => "invalid cross-device link",
        Errno::EMFILE => "too many open files",
        Errno::ENOTTY => "inappropriate ioctl for device",
        Errno::ESPIPE => "illegal seek",
        Errno::EDOM => "numerical argument out of domain",
        Errno::ERANGE => "numerical result out of range",
        Errno::EDEADLK => "resource deadlock avoided",
        Errno::ENAMETOOLONG => "file name too long",
        Errno::ELOOP => "too many levels of symbolic links",
        Errno::ETIME => "timer expired",
        Errno::ENONET => "machine is not on the network",
        Errno::ENOPKG => "package not installed",
        Errno::EOVERFLOW => "value too large for defined data type",
        Errno::EUSERS => "too many users",
        Errno::ENOTSOCK => "socket operation on non-socket",
        Errno::EMSGSIZE => "message too long",
        Errno::EOPNOTSUPP => "operation not supported",
        Errno::EADDRINUSE => "address already in use",
        Errno::EADDRNOTAVAIL => "cannot assign requested address",
        Errno::ENETUNREACH => "network is unreachable",
        Errno::ECONNABORTED => "software caused connection abort",
        Errno::EISCONN => "transport endpoint is already connected",
        Errno::ENOTCONN => "transport endpoint is not connected",
        Errno::ESHUTDOWN => "cannot send after transport endpoint shutdown",
        Errno::ETIMEDOUT => "connection timed out",
        Errno::EHOSTUNREACH => "no route to host",
        Errno::EINPROGRESS => "operation now in progress",
        Errno::EUCLEAN => "structure needs cleaning",
        Errno::EDQUOT => "disk quota exceeded",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests are built with glibc, so its `strerror(3)` is the reference.
    #[test]
    #[cfg(target_env = "gnu")]
    fn words_beside_musls_are_those_of_glibc() {
        let mut known = 0;
        for errno in 1..=133 {
            let Some(text) = other_in_musl(Errno::from_raw(errno)) else { continue };
            let glibc = io::Error::from_raw_os_error(errno).to_string().to_lowercase();
            assert_eq!(format!("{text} (os error {errno})"), glibc);
            known += 1;
        }
        assert_eq!(known, 33);
    }

    #[test]
    fn texts_are_those_of_the_c_library_in_lower_case() {
        for (errno, text) in [
            (Errno::ENOENT, "no such file or directory"),
            (Errno::EEXIST, "file exists"),
            (Errno::ERANGE, "numerical result out of range"),
            (Errno::EOPNOTSUPP, "operation not supported"),
        ] {
            assert_eq!(describe(errno as i32), text);
        }
    }

    #[test]
    fn errors_name_operation_object_and_explanation() {
        let error = Subject { operation: "create bridge", object: &"br0" }
            .refused(Errno::EOPNOTSUPP as i32, Some("Bridge: no such option"));
        assert_eq!(error.to_string(), "create bridge br0: operation not supported: Bridge: no such option");
        assert!(error.is(Errno::EOPNOTSUPP) && !error.is(Errno::EEXIST));
    }

    #[test]
    fn requests_without_an_answer_say_why() {
        let list = Subject { operation: "list", object: &"links" };
        for (error, errno, text) in [
            (NetlinkError::Late, None, "list links: the kernel's answer took more than 5 seconds"),
            (NetlinkError::Lost, None, "list links: the kernel's answer was lost"),
            (NetlinkError::TooMany(3), None, "list links: there are more than 3"),
            (
                NetlinkError::Changing,
                Some(Errno::EAGAIN as i32),
                "list links: resource temporarily unavailable: the list keeps changing while it is read",
            ),
            (
                NetlinkError::Refused { errno: Errno::EINVAL as i32, explanation: Some("why".to_owned()) },
                Some(Errno::EINVAL as i32),
                "list links: invalid argument: why",
            ),
        ] {
            let error = list.unanswered(error);
            assert_eq!((error.errno, error.to_string().as_str()), (errno, text));
            assert_eq!(error.is_passing(), text.contains("took more than") || text.contains("lost"), "{text}");
        }
    }
}
