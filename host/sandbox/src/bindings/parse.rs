//! A parser for the guest's texts: each becomes a value, or the error `invalid-argument`. The gate never sees a
//! malformed text.

use postern_types::{ErrorCode, Forward, Mac, OpError};
use std::fmt::Display;
use std::str::FromStr;

/// A type that can be parsed, with an example.
pub(super) trait Text: FromStr<Err: Display> {
    const EXPECTED: &'static str;
}

impl Text for std::net::IpAddr {
    const EXPECTED: &'static str = "an address such as 10.1.2.3 or 2001:db8::1";
}

impl Text for Mac {
    const EXPECTED: &'static str = "a link-layer address such as 02:00:5e:10:00:01";
}

impl Text for ipnet::IpNet {
    const EXPECTED: &'static str = "an address with prefix length such as 10.1.2.3/24 or 2001:db8::1/64";
}

/// Parses one text. `operation` is the guest's call, such as `bridge.attach`.
pub(super) fn text<T: Text>(operation: &str, text: &str) -> Result<T, OpError> {
    text.parse().map_err(|error| {
        // The guest chooses the length of its text, and people read the error.
        let shown: String = text.chars().take(64).collect();
        let message = format!("{shown:?} is not {}: {error}", T::EXPECTED);
        let mut error = OpError::new(ErrorCode::InvalidArgument, shown, message);
        error.operation = operation.to_owned();
        error
    })
}

/// Parses a text that may be absent.
pub(super) fn maybe<T: Text>(operation: &str, given: Option<&String>) -> Result<Option<T>, OpError> {
    given.map(|given| text(operation, given)).transpose()
}

/// Parses a list of texts.
pub(super) fn list<T: Text>(operation: &str, texts: &[String]) -> Result<Vec<T>, OpError> {
    texts.iter().map(|given| text(operation, given)).collect()
}

/// A value of texts and numbers, of which some combinations are invalid.
pub(super) trait Checked {
    /// Returns the fault: the object, and the message.
    fn fault(&self) -> Option<(String, &'static str)>;
}

impl Checked for Forward {
    fn fault(&self) -> Option<(String, &'static str)> {
        let message = "a forward has 1 to 65535 ports, and each of them is a port from 1 to 65535";
        (!self.is_possible()).then(|| (self.host_port.to_string(), message))
    }
}

/// Returns the value if the combination of its parts is valid.
pub(super) fn checked<T: Checked>(operation: &str, value: T) -> Result<T, OpError> {
    let Some((object, message)) = value.fault() else { return Ok(value) };
    let mut error = OpError::new(ErrorCode::InvalidArgument, object, message);
    error.operation = operation.to_owned();
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn a_malformed_text_is_an_invalid_argument_that_names_it() {
        let error = text::<IpAddr>("leases.reserve", "10.1.2.3/24").unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArgument);
        assert_eq!(error.operation, "leases.reserve");
        assert_eq!(error.object, "10.1.2.3/24");
        assert!(error.message.contains("10.1.2.3 or"), "{error}");
    }

    #[test]
    fn a_long_text_is_cut() {
        let error = text::<Mac>("veth.create", &"é".repeat(100_000)).unwrap_err();
        assert!(error.object.chars().count() == 64);
    }

    #[test]
    fn lists_and_options() {
        assert_eq!(maybe::<IpAddr>("x", None), Ok(None));
        assert_eq!(list::<IpAddr>("x", &["::1".into()]), Ok(vec!["::1".parse().unwrap()]));
        assert!(list::<IpAddr>("x", &["::1".into(), "1".into()]).is_err());
    }
}
