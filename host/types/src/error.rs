//! The one error that a guest can get from the gate.

use serde::{Deserialize, Serialize};

/// Why an operation failed. Closed: it mirrors the enum `error-code` of `wit/types.wit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// Policy does not grant it. The hint is the policy line that would.
    Denied,
    /// The object does not exist (any more).
    NotFound,
    /// The object exists already, or another one stands in its place.
    Exists,
    /// An argument is malformed, out of range, or not this attachment's.
    InvalidArgument,
    /// The handle was never given out, or its object is gone.
    InvalidHandle,
    /// The kernel or the operator's configuration lacks what is needed.
    Unsupported,
    /// Nothing is left to hand out: addresses, handles or operations.
    Exhausted,
    /// A lock or another run is in the way; CNI code 11.
    TryAgain,
    /// The deadline of the run has passed.
    Deadline,
    /// A check found the node other than it should be.
    Mismatch,
    /// The kernel refused; `errno` tells.
    Kernel,
    /// A file could not be read or written; CNI code 5.
    Io,
    /// The delegate answered with an error of its own, carried in `delegate`.
    Delegate,
}

/// A delegated plugin's CNI error object, handed on unchanged (specification 1.1.0, "Error").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegateError {
    /// CNI error code.
    pub code: u32,
    /// Short text.
    pub msg: String,
    /// Longer text, may be empty.
    #[serde(default)]
    pub details: String,
}

/// What the gate answers instead of a [`crate::Reply`]. Mirrors the record `error` of `wit/types.wit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}{}", way_out(hint))]
pub struct OpError {
    /// What kind of failure.
    pub code: ErrorCode,
    /// The kernel's error number, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// The operation, as `interface.function` of the WIT package: `bridge.attach`.
    pub operation: String,
    /// What it was to act on: a link's name, an address, a path.
    pub object: String,
    /// What happened, one sentence without a final full stop.
    pub message: String,
    /// The way out; empty if there is none to tell.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// The delegate's own error, for [`ErrorCode::Delegate`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegate: Option<DelegateError>,
}

impl OpError {
    /// An error without errno, hint and delegate; operation and object are filled in by the gate if empty.
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

    /// The same with a way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The same with the kernel's error number.
    #[must_use]
    pub fn errno(mut self, errno: i32) -> Self {
        self.errno = Some(errno);
        self
    }
}

/// The way out, behind the message.
fn way_out(hint: &str) -> String {
    if hint.is_empty() { String::new() } else { format!(" ({hint})") }
}
