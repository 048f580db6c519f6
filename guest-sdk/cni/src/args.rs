//! `CNI_ARGS`, the older way to pass flat key-value pairs.

use crate::error::Error;
use crate::quote::{quote, quote_list};
use std::collections::BTreeMap;
use std::fmt;

/// The pairs whose keys the plugin knows. Only plugins that use `CNI_ARGS` parse the variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args(BTreeMap<String, String>);

impl Args {
    /// Parses `KEY=VALUE;KEY=VALUE`. Case matters in keys, and the last of two equal keys wins. A key that is not in
    /// `known` is an error, unless `IgnoreUnknown` is 1 or true anywhere in the text.
    ///
    /// # Errors
    /// Code 999. The message has the first part that does not have exactly one `=` (even with `IgnoreUnknown`), the
    /// invalid boolean, or the unknown pairs.
    pub fn parse(text: &str, known: &[&str]) -> Result<Args, Error> {
        let mut args = Args::default();
        if text.is_empty() {
            return Ok(args);
        }
        let mut ignore_unknown = false;
        let mut unknown = Vec::new();
        for pair in text.split(';') {
            let (key, value) = pair
                .split_once('=')
                .filter(|(_, value)| !value.contains('='))
                .ok_or_else(|| Error::internal(format!("ARGS: invalid pair {}", quote(pair))))?;
            if key == "IgnoreUnknown" {
                ignore_unknown = boolean(value).map_err(|cause| bad_value(key, value, cause))?;
            } else if known.contains(&key) {
                args.0.insert(key.to_owned(), value.to_owned());
            } else {
                unknown.push(pair);
            }
        }
        if !unknown.is_empty() && !ignore_unknown {
            return Err(Error::internal(format!("ARGS: unknown args {}", quote_list(unknown))));
        }
        Ok(args)
    }

    /// Returns the value of a known key. The value may be empty.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Returns the value of a known key, read by `read`; an absent or empty value is `None`.
    ///
    /// # Errors
    /// Code 999 with the pair and the error of `read`.
    pub fn read<T, E: fmt::Display>(
        &self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Error> {
        match self.get(key) {
            None | Some("") => Ok(None),
            Some(value) => read(value).map(Some).map_err(|cause| bad_value(key, value, cause)),
        }
    }
}

fn bad_value(key: &str, value: &str, cause: impl fmt::Display) -> Error {
    Error::internal(format!("ARGS: error parsing value of pair {}: {cause}", quote(&format!("{key}={value}"))))
}

fn boolean(value: &str) -> Result<bool, String> {
    match value.to_lowercase().as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        other => Err(format!("boolean unmarshal error: invalid input {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::parse_ip;

    fn message(text: &str) -> String {
        let error = Args::parse(text, &["MAC"]).unwrap_err();
        assert_eq!(error.code, 999);
        error.msg
    }

    #[test]
    fn known_pairs() {
        assert_eq!(Args::parse("", &[]).unwrap(), Args::default());
        let args = Args::parse("MAC=a;MAC=b;IP=", &["MAC", "IP"]).unwrap();
        assert_eq!((args.get("MAC"), args.get("IP"), args.get("X")), (Some("b"), Some(""), None));
    }

    #[test]
    fn unknown_pairs() {
        assert_eq!(message("A=1;MAC=x;B=2"), r#"ARGS: unknown args ["A=1" "B=2"]"#);
        assert_eq!(message("mac=x"), r#"ARGS: unknown args ["mac=x"]"#);
        assert_eq!(message("ignoreunknown=1"), r#"ARGS: unknown args ["ignoreunknown=1"]"#);
        assert_eq!(message("A=1;IgnoreUnknown=0"), r#"ARGS: unknown args ["A=1"]"#);
        for on in ["IgnoreUnknown=1;A=1", "A=1;IgnoreUnknown=TRUE", "A=1;IgnoreUnknown=0;IgnoreUnknown=true"] {
            assert_eq!(Args::parse(on, &["MAC"]).unwrap(), Args::default(), "{on}");
        }
    }

    #[test]
    fn malformed_pairs() {
        assert_eq!(message("IgnoreUnknown=1;MAC=x;"), r#"ARGS: invalid pair """#);
        assert_eq!(message("MAC"), r#"ARGS: invalid pair "MAC""#);
        assert_eq!(message("A=1;MAC=x=y"), r#"ARGS: invalid pair "MAC=x=y""#);
        assert_eq!(
            message("IgnoreUnknown=Yes"),
            r#"ARGS: error parsing value of pair "IgnoreUnknown=Yes": boolean unmarshal error: invalid input yes"#
        );
    }

    #[test]
    fn typed_values() {
        let args = Args::parse("IP=10.0.0.1;GW=foo;E=", &["IP", "GW", "E"]).unwrap();
        assert_eq!(args.read("IP", parse_ip).unwrap(), Some("10.0.0.1".parse().unwrap()));
        assert_eq!(args.read("E", parse_ip).unwrap(), None);
        assert_eq!(
            args.read("GW", parse_ip).unwrap_err().msg,
            r#"ARGS: error parsing value of pair "GW=foo": invalid IP address: foo"#
        );
    }
}
