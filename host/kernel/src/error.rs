//! The one error of this crate.

use crate::netlink::ANSWER_WITHIN;
use nix::errno::Errno;
use postern_netlink::Error;
use std::fmt;
use std::io;

/// What the functions of this crate return.
pub type Result<T> = std::result::Result<T, KernelError>;

/// The kernel refused, or could not be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} {object}: {message}")]
pub struct KernelError {
    /// What was tried: `create bridge`, `add address`, …
    pub operation: &'static str,
    /// What it was tried on: a link, an address, a path.
    pub object: String,
    /// The kernel's error number; `None` if the failure was not an answer of the kernel.
    pub errno: Option<i32>,
    /// What happened: the error number's text, lower case as the native plugins print it, followed by the kernel's own
    /// explanation (extended acknowledgement, `NLMSGERR_ATTR_MSG`) if it gave one.
    pub message: String,
}

impl KernelError {
    /// Whether this is that error of the kernel.
    pub fn is(&self, errno: Errno) -> bool {
        self.errno == Some(errno as i32)
    }
}

/// An operation and its object, carried along until it is known whether an error has to name them.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub operation: &'static str,
    pub object: &'a dyn fmt::Display,
}

impl Subject<'_> {
    /// The kernel answered with an error number, and perhaps an explanation.
    pub fn refused(self, errno: i32, explanation: Option<&str>) -> KernelError {
        let message = match explanation {
            Some(explanation) => format!("{}: {explanation}", describe(errno)),
            None => describe(errno),
        };
        KernelError { operation: self.operation, object: self.object.to_string(), errno: Some(errno), message }
    }

    /// A system call failed.
    pub fn failed(self, error: &io::Error) -> KernelError {
        match error.raw_os_error() {
            Some(errno) => self.refused(errno, None),
            None => self.broken(error.to_string()),
        }
    }

    /// A request has no answer.
    pub fn unanswered(self, error: Error) -> KernelError {
        match error {
            Error::Refused { errno, explanation } => self.refused(errno, explanation.as_deref()),
            Error::System(error) => self.failed(&error),
            Error::Changing => self.refused(Errno::EAGAIN as i32, Some(&error.to_string())),
            Error::Late => {
                self.broken(format!("the kernel's answer took more than {} seconds", ANSWER_WITHIN.as_secs()))
            }
            other => self.broken(other.to_string()),
        }
    }

    /// What was asked for can't be asked of the kernel; the caller sees `EINVAL`.
    pub fn invalid(self, why: &str) -> KernelError {
        self.refused(Errno::EINVAL as i32, Some(why))
    }

    /// Something other than the kernel's answer went wrong.
    pub fn broken(self, message: impl Into<String>) -> KernelError {
        KernelError { operation: self.operation, object: self.object.to_string(), errno: None, message: message.into() }
    }
}

/// The text of an error number with a small first letter (`strerror(3)`, but as Go's programs print it, which is what
/// people search for).
#[must_use]
pub fn describe(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        // `RFS specific error` is an abbreviation and stays.
        Some(first) if !letters.as_str().starts_with(char::is_uppercase) => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (Error::Late, None, "list links: the kernel's answer took more than 5 seconds"),
            (Error::TooMany(3), None, "list links: there are more than 3"),
            (
                Error::Changing,
                Some(Errno::EAGAIN as i32),
                "list links: resource temporarily unavailable: the list keeps changing while it is read",
            ),
            (
                Error::Refused { errno: Errno::EINVAL as i32, explanation: Some("why".to_owned()) },
                Some(Errno::EINVAL as i32),
                "list links: invalid argument: why",
            ),
        ] {
            let error = list.unanswered(error);
            assert_eq!((error.errno, error.to_string().as_str()), (errno, text));
        }
    }
}
