//! The error that a guest can get from the gate.

use postern_cni::{Error, code};
use serde::{Deserialize, Serialize};

/// The code for a request that policy does not grant. It is one of the codes that a plugin may define (100 and above).
pub const DENIED: u32 = 110;

/// The reason why an operation failed. The list is closed: it mirrors the enum `error-code` of `wit/types.wit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// Policy does not grant the operation. The hint is the policy line that would grant it.
    Denied,
    /// The object does not exist, or no longer exists.
    NotFound,
    /// The object exists already, or another object has its place.
    Exists,
    /// An argument is malformed, out of range, or does not belong to this attachment.
    InvalidArgument,
    /// The handle was never given out, or its object is gone.
    InvalidHandle,
    /// The kernel or the operator's configuration lacks something that the operation needs.
    Unsupported,
    /// All addresses, handles or operations are used up.
    Exhausted,
    /// Another run holds a lock, or is in conflict with this run; CNI code 11.
    TryAgain,
    /// The deadline of the run has passed.
    Deadline,
    /// A check found the node different from the expected state.
    Mismatch,
    /// The kernel refused; `errno` has the reason.
    Kernel,
    /// A file could not be read or written; CNI code 5.
    Io,
    /// The delegate answered with its own error, carried in `delegate`.
    Delegate,
}

/// The gate's answer to a failed operation, instead of a [`crate::Reply`]. Mirrors the record `error` of
/// `wit/types.wit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}{}", way_out(hint))]
pub struct OpError {
    /// The kind of failure.
    pub code: ErrorCode,
    /// The kernel's error number, if there is one.
    pub errno: Option<i32>,
    /// The operation, as `interface.function` of the WIT package: `bridge.attach`.
    pub operation: String,
    /// The object of the operation: a link's name, an address, a path.
    pub object: String,
    /// The failure, in one sentence without a final full stop.
    pub message: String,
    /// A hint how to solve the problem; empty if no hint is known.
    #[serde(default)]
    pub hint: String,
    /// The delegate's own error, for [`ErrorCode::Delegate`], passed on unchanged.
    pub delegate: Option<Error>,
}

impl OpError {
    /// Makes an error without errno, hint and delegate. The gate fills in operation and object if they are empty.
    pub fn new(code: ErrorCode, object: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code,
            errno: None,
            operation: String::new(),
            object: object.into(),
            message: message.into(),
            hint: String::new(),
            delegate: None,
        }
    }

    /// Returns the error with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Returns the error with the kernel's error number.
    #[must_use]
    pub fn errno(mut self, errno: i32) -> Self {
        self.errno = Some(errno);
        self
    }
}

/// Converts the gate's error to the error object of a plugin that fails because of this error. A delegate's error stays
/// unchanged. Every other error has the host's message: the native plugins' text, if there is one. Operation, object
/// and hint become the details.
impl From<OpError> for Error {
    fn from(error: OpError) -> Self {
        if let Some(delegate) = error.delegate {
            return delegate;
        }
        let code = match error.code {
            ErrorCode::Denied => DENIED,
            ErrorCode::TryAgain | ErrorCode::Deadline => code::TRY_AGAIN_LATER,
            ErrorCode::Io => code::IO_FAILURE,
            _ => code::INTERNAL,
        };
        let mut details = error.operation;
        for (separator, part) in [(" ", error.object), ("; ", error.hint)] {
            if !details.is_empty() && !part.is_empty() {
                details.push_str(separator);
            }
            details.push_str(&part);
        }
        Self { code, msg: error.message, details }
    }
}

/// Returns the hint as text that follows the message.
fn way_out(hint: &str) -> String {
    if hint.is_empty() { String::new() } else { format!(" ({hint})") }
}
