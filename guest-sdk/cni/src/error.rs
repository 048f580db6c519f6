//! The error object of CNI.

use crate::json::Json;
use crate::print::pretty;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The codes that the specification reserves (below 100), and the code that plugins use for all other errors.
pub mod code {
    /// The cause is unknown: a delegate failed without an error object.
    pub const UNKNOWN: u32 = 0;
    /// The version of the configuration isn't supported, or lacks the verb.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// A field of the configuration isn't supported; the message names key and value.
    pub const UNSUPPORTED_FIELD: u32 = 2;
    /// The container is unknown: the runtime has nothing to clean up.
    pub const UNKNOWN_CONTAINER: u32 = 3;
    /// A variable of the environment is missing or invalid.
    pub const INVALID_ENVIRONMENT: u32 = 4;
    /// Reading or writing failed.
    pub const IO_FAILURE: u32 = 5;
    /// The content can't be decoded.
    pub const DECODING_FAILURE: u32 = 6;
    /// The configuration is decodable but wrong.
    pub const INVALID_NETWORK_CONFIG: u32 = 7;
    /// `CNI_NETNS` is the plugin's own namespace. The CNI library has this code; the specification lacks it.
    pub const INVALID_NETNS: u32 = 8;
    /// A temporary condition: the runtime should try again.
    pub const TRY_AGAIN_LATER: u32 = 11;
    /// STATUS: the plugin can't serve ADD.
    pub const PLUGIN_NOT_AVAILABLE: u32 = 50;
    /// STATUS: the plugin can't serve ADD, and existing containers may have limited connectivity.
    pub const LIMITED_CONNECTIVITY: u32 = 51;
    /// The first code that a plugin may define.
    pub const PLUGIN_SPECIFIC: u32 = 100;
    /// Every error that has no other code.
    pub const INTERNAL: u32 = 999;
}

/// The error of this crate. A plugin prints it instead of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{msg}{}{details}", if .details.is_empty() { "" } else { "; " })]
pub struct Error {
    /// One of [`code`], or 100 and above.
    pub code: u32,
    /// The failure, in one line.
    pub msg: String,
    /// More about the failure; may be empty.
    #[serde(default)]
    pub details: String,
}

impl Error {
    /// Makes an error without details.
    pub fn new(code: u32, msg: impl Into<String>) -> Error {
        Error { code, msg: msg.into(), details: String::new() }
    }

    /// Makes an error of no known kind, code 999.
    pub fn internal(msg: impl Into<String>) -> Error {
        Error::new(code::INTERNAL, msg)
    }

    /// Makes an error for an invalid environment, code 4.
    pub fn environment(msg: impl Into<String>) -> Error {
        Error::new(code::INVALID_ENVIRONMENT, msg)
    }

    /// Makes an error for an input that can't be decoded, code 6.
    pub fn decoding(msg: impl Into<String>) -> Error {
        Error::new(code::DECODING_FAILURE, msg)
    }

    /// Makes an error for an invalid configuration, code 7.
    pub fn config(msg: impl Into<String>) -> Error {
        Error::new(code::INVALID_NETWORK_CONFIG, msg)
    }

    /// Makes an error for an incompatible version, code 1.
    pub fn version(msg: impl Into<String>) -> Error {
        Error::new(code::INCOMPATIBLE_VERSION, msg)
    }

    /// Makes the error for a `CNI_NETNS` that is the plugin's own namespace, code 8.
    pub fn same_netns() -> Error {
        Error::new(code::INVALID_NETNS, "plugin's netns and netns from CNI_NETNS should not be the same")
    }

    /// Returns the same error with these details.
    #[must_use]
    pub fn with_details(self, details: impl Into<String>) -> Error {
        Error { details: details.into(), ..self }
    }

    /// Returns the same error with another code.
    #[must_use]
    pub fn with_code(self, code: u32) -> Error {
        Error { code, ..self }
    }

    /// Returns the same error with `context` and a colon before its message.
    #[must_use]
    pub fn context(self, context: impl fmt::Display) -> Error {
        Error { msg: format!("{context}: {}", self.msg), ..self }
    }

    /// Reads the error object that another plugin printed. An absent code becomes 0, and an absent text is empty, as in
    /// native plugins.
    ///
    /// # Errors
    /// Code 999 if `json` isn't an object, or if a key has the wrong type.
    pub fn parse(json: &Json) -> Result<Error, Error> {
        let fields = json.fields("Error")?;
        let code = fields.uint("code")?.unwrap_or(0);
        Ok(Error {
            // Native plugins read 64 bits here, but no code needs more than 32. A larger number becomes 999.
            code: u32::try_from(code).unwrap_or(code::INTERNAL),
            msg: fields.string("msg")?.unwrap_or_default(),
            details: fields.string("details")?.unwrap_or_default(),
        })
    }

    /// Returns the error object as native plugins print it: indented by 4, no newline at its end, no `cniVersion`.
    pub fn to_json(&self) -> String {
        let mut entries = vec![
            ("code".to_owned(), Json::from(i64::from(self.code))),
            ("msg".to_owned(), Json::from(self.msg.as_str())),
        ];
        if !self.details.is_empty() {
            entries.push(("details".to_owned(), Json::from(self.details.as_str())));
        }
        pretty(&Json::Object(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_as_natives_print_it() {
        let error = Error::new(7, "a <b> & \"c\"");
        assert_eq!(error.to_json(), "{\n    \"code\": 7,\n    \"msg\": \"a \\u003cb\\u003e \\u0026 \\\"c\\\"\"\n}");
        assert_eq!(
            Error::new(0, "m").with_details("d").to_json(),
            "{\n    \"code\": 0,\n    \"msg\": \"m\",\n    \"details\": \"d\"\n}"
        );
    }

    #[test]
    fn as_text() {
        assert_eq!(Error::internal("m").to_string(), "m");
        assert_eq!(Error::internal("m").with_details("d").context("c").to_string(), "c: m; d");
    }

    #[test]
    fn read_back() {
        let error = Error::new(11, "later\u{2028}").with_details("<tag>");
        assert_eq!(Error::parse(&Json::parse(error.to_json().as_bytes(), 1000).unwrap()).unwrap(), error);
        let strange = Json::parse(br#"{"Code": 99999999999, "MSG": null}"#, 100).unwrap();
        assert_eq!(Error::parse(&strange).unwrap(), Error::internal(""));
        let wrong = Error::parse(&Json::parse(br#"{"code": "7"}"#, 100).unwrap()).unwrap_err();
        assert_eq!(wrong.msg, "json: cannot unmarshal string into Go struct field Error.code of type uint");
    }
}
