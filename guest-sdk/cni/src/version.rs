//! Versions of the specification.

use crate::error::{Error, code};
use crate::fields::Fields;
use crate::json::Json;
use crate::quote::quote;
use std::fmt;

crate::named! {
    as_str, exactly:
    /// A published version of the CNI specification, in the order of publication.
    #[allow(missing_docs, reason = "the names say it")]
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Version {
        V0_1_0 = "0.1.0",
        V0_2_0 = "0.2.0",
        V0_3_0 = "0.3.0",
        V0_3_1 = "0.3.1",
        V0_4_0 = "0.4.0",
        V1_0_0 = "1.0.0",
        V1_1_0 = "1.1.0",
    }
}

impl Version {
    /// The newest version.
    pub const LATEST: Version = Version::V1_1_0;

    /// Reads a version in its exact spelling: `1.0` and `v1.0.0` are not versions. The empty text, which also stands
    /// for an absent `cniVersion`, is 0.1.0.
    pub fn parse(text: &str) -> Option<Version> {
        if text.is_empty() { Some(Version::V0_1_0) } else { Version::exactly(text) }
    }

    /// Returns the version as numbers, for a comparison with an unknown version.
    pub fn numeric(self) -> NumericVersion {
        let mut parts = self.as_str().split('.').map(|part| part.parse().unwrap_or_default());
        NumericVersion([(); 3].map(|()| parts.next().unwrap_or_default()))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Any version with up to three numeric parts, known or not. The numbers decide whether a verb exists, before the
/// version is compared with the supported versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NumericVersion([i64; 3]);

impl NumericVersion {
    /// Reads up to three numbers with dots between them. Missing numbers are 0, and the empty text is 0.1.0.
    ///
    /// # Errors
    /// Code 6 if the text has more than three parts, or if a part isn't a number.
    pub fn parse(text: &str) -> Result<NumericVersion, Error> {
        if text.is_empty() {
            return Ok(Version::V0_1_0.numeric());
        }
        if text.split('.').count() > 3 {
            return Err(Error::new(code::DECODING_FAILURE, format!("invalid version {}: too many parts", quote(text))));
        }
        let mut numbers = [0; 3];
        for ((number, part), name) in numbers.iter_mut().zip(text.split('.')).zip(["major", "minor", "micro"]) {
            *number = part.parse::<i64>().map_err(|error| {
                let cause = match error.kind() {
                    std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
                    _ => "invalid syntax",
                };
                let part = quote(part);
                Error::new(
                    code::DECODING_FAILURE,
                    format!("failed to convert {name} version part {part}: strconv.Atoi: parsing {part}: {cause}"),
                )
            })?;
        }
        Ok(NumericVersion(numbers))
    }
}

/// The answer of a plugin to the verb VERSION.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionInfo {
    /// The version of the answer itself.
    pub cni_version: String,
    /// The versions that the plugin supports, as the plugin wrote them. This crate may not know all of them.
    pub supported: Vec<String>,
}

impl VersionInfo {
    /// Reads the answer. A plugin that names no supported versions but answers in 0.2.0 supports 0.1.0 and 0.2.0.
    ///
    /// # Errors
    /// Code 999 if a key is missing or has the wrong type.
    pub fn parse(json: &Json) -> Result<VersionInfo, Error> {
        let read = |fields: Fields<'_>| {
            let cni_version = fields.string("cniVersion")?.unwrap_or_default();
            let supported = fields.strings("supportedVersions")?.unwrap_or_default();
            if cni_version.is_empty() {
                return Err(Error::internal("missing field cniVersion"));
            }
            let supported = match (supported.is_empty(), cni_version.as_str()) {
                (false, _) => supported,
                (true, "0.2.0") => vec!["0.1.0".to_owned(), "0.2.0".to_owned()],
                (true, _) => return Err(Error::internal("missing field supportedVersions")),
            };
            Ok(VersionInfo { cni_version, supported })
        };
        json.fields("pluginInfo").and_then(read).map_err(|error| error.context("decoding version info"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_published_texts() {
        for version in Version::ALL {
            assert_eq!(Version::parse(version.as_str()), Some(version));
            assert_eq!(NumericVersion::parse(version.as_str()).unwrap(), version.numeric());
        }
        assert_eq!(Version::parse(""), Some(Version::V0_1_0));
        for wrong in ["1.0", "v1.0.0", "1.0.0 ", "1.2.0", "0.3.2", "01.0.0", "1.0.0\n"] {
            assert_eq!(Version::parse(wrong), None, "{wrong:?}");
        }
        assert!(Version::ALL.is_sorted());
        assert_eq!(Version::ALL.last(), Some(&Version::LATEST));
    }

    #[test]
    fn numbers_compare_as_numbers() {
        let parse = |text| NumericVersion::parse(text).unwrap();
        assert!(parse("0.10") > Version::V0_4_0.numeric());
        assert!(parse("1") == Version::V1_0_0.numeric());
        assert!(parse("") < Version::V0_2_0.numeric());
        assert!(parse("2.0.0") > Version::LATEST.numeric());
        for (text, message) in [
            ("1.2.3.4", r#"invalid version "1.2.3.4": too many parts"#),
            ("a", r#"failed to convert major version part "a": strconv.Atoi: parsing "a": invalid syntax"#),
            ("1.", r#"failed to convert minor version part "": strconv.Atoi: parsing "": invalid syntax"#),
            (
                "1.0.99999999999999999999",
                r#"failed to convert micro version part "99999999999999999999": strconv.Atoi: parsing "99999999999999999999": value out of range"#,
            ),
        ] {
            let error = NumericVersion::parse(text).unwrap_err();
            assert_eq!((error.code, error.msg.as_str()), (6, message));
        }
    }

    #[test]
    fn version_answers() {
        let parse = |text: &str| VersionInfo::parse(&Json::parse(text.as_bytes(), 1000).unwrap());
        assert_eq!(parse(r#"{"cniVersion":"0.2.0"}"#).unwrap().supported, ["0.1.0", "0.2.0"]);
        assert_eq!(parse(r#"{"cniVersion":"x","supportedVersions":["y"]}"#).unwrap().supported, ["y"]);
        assert_eq!(parse("{}").unwrap_err().msg, "decoding version info: missing field cniVersion");
        let bare = parse(r#"{"cniVersion":"1.0.0"}"#).unwrap_err();
        assert_eq!(bare.msg, "decoding version info: missing field supportedVersions");
    }
}
