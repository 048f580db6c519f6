//! The error of a plugin.

pub use postern_types::DENIED;

use postern_types::{ErrorCode, OpError};
use std::fmt;

/// A failure. If it ends the verb, the runtime reads it. An error has the size of one pointer, because results pass
/// through many functions and are rarely errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.object)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    object: postern_cni::Error,
    kind: Option<ErrorCode>,
}

impl Error {
    /// Makes an error with the general code 999.
    pub fn new(msg: impl Into<String>) -> Self {
        postern_cni::Error::internal(msg).into()
    }

    /// Makes an error for a configuration that can be decoded but makes no sense, code 7.
    pub fn config(msg: impl Into<String>) -> Self {
        postern_cni::Error::config(msg).into()
    }

    /// Makes an error for a plugin that can't serve ADD now, code 50: an answer to STATUS.
    pub fn unavailable(msg: impl Into<String>) -> Self {
        postern_cni::Error::new(postern_cni::code::PLUGIN_NOT_AVAILABLE, msg).into()
    }

    /// Returns the same error with `context` and a colon before its message.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.0.object.msg = format!("{context}: {}", self.0.object.msg);
        self
    }

    /// Returns a decoder's error with the native plugin's `words` before its message. Any other error stays unchanged.
    #[must_use]
    pub fn decoding(self, words: &str) -> Self {
        match self.0.object.msg.starts_with("json: ") {
            true => self.context(words),
            false => self,
        }
    }

    /// Returns the kind of failure that the host reported; `None` for the plugin's own errors.
    pub fn kind(&self) -> Option<ErrorCode> {
        self.0.kind
    }

    /// Returns the error object to print.
    pub fn object(&self) -> &postern_cni::Error {
        &self.0.object
    }
}

impl From<postern_cni::Error> for Error {
    #[inline(never)]
    fn from(object: postern_cni::Error) -> Self {
        Self(Box::new(Inner { object, kind: None }))
    }
}

/// Converts the host's error by the rules that the host uses too ([`postern_types::OpError`]).
impl From<OpError> for Error {
    fn from(error: OpError) -> Self {
        let kind = Some(error.code);
        Self(Box::new(Inner { object: error.into(), kind }))
    }
}

/// Returns the first failure of several attempts. The caller makes all attempts first, as DEL requires.
///
/// # Errors
/// The first failure.
pub fn all<const N: usize>(outcomes: [Result<(), Error>; N]) -> Result<(), Error> {
    outcomes.into_iter().find(Result::is_err).unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_code() {
        for (kind, code) in [
            (ErrorCode::Denied, 110),
            (ErrorCode::TryAgain, 11),
            (ErrorCode::Deadline, 11),
            (ErrorCode::Io, 5),
            (ErrorCode::Kernel, 999),
            (ErrorCode::Delegate, 999),
            (ErrorCode::Exists, 999),
        ] {
            let error = Error::from(OpError::new(kind, "o", "m"));
            assert_eq!((error.object().code, error.kind()), (code, Some(kind)));
        }
        assert_eq!(Error::new("m").kind(), None);
    }

    #[test]
    fn operation_object_and_way_out_are_the_details() {
        let mut error = OpError::new(ErrorCode::Denied, "br0", "not granted").hint("bridge = [\"br0\"]");
        assert_eq!(Error::from(error.clone()).object().details, "br0; bridge = [\"br0\"]");
        error.operation = "bridge.ensure".to_owned();
        assert_eq!(Error::from(error.clone()).object().details, "bridge.ensure br0; bridge = [\"br0\"]");
        error.object.clear();
        error.hint.clear();
        assert_eq!(Error::from(error).context("c").to_string(), "c: not granted; bridge.ensure");
    }

    #[test]
    fn a_delegates_error_is_handed_on() {
        let delegate = postern_cni::Error::new(123, "m").with_details("d");
        let error = OpError::new(ErrorCode::Delegate, "o", "ipam failed");
        let error = OpError { delegate: Some(delegate.clone()), ..error };
        assert_eq!(*Error::from(error).object(), delegate);
    }

    #[test]
    fn the_first_of_several_failures_is_told() {
        let error = |text| Err(Error::new(text));
        assert_eq!(all([Ok(()), error("a"), error("b")]), error("a"));
        assert_eq!(all([Ok(()), Ok(())]), Ok(()));
    }
}
