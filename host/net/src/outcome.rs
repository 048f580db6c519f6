//! A plugin's answer to ADD.

use postern_cni::{CniResult, Error, Json, Version};
use serde_json::Value;

/// The greatest size of a result in bytes.
const LIMIT: usize = 4 << 20;

/// A result with the version that it declares.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The parts of the attachment.
    pub result: CniResult,
    /// The version of the result's text.
    pub version: Version,
}

impl Outcome {
    /// Reads the output of a plugin. A result without a version has the version of the configuration.
    ///
    /// # Errors
    /// Code 999: the output is not one result, or its version is unknown.
    pub fn parse(stdout: &[u8], config_version: &str) -> Result<Self, Error> {
        let json = Json::parse(stdout, LIMIT)
            .map_err(|error| Error::internal(format!("failed to unmarshal raw result: {error}")))?;
        Self::read(&json, config_version)
    }

    /// Reads a result of the cache in its own version, and converts it to the version of the configuration.
    ///
    /// # Errors
    /// Code 999: the file has no valid result, or a version is unknown.
    pub fn of_cache(json: &Json, config_version: &str) -> Result<Self, Error> {
        let Self { result, .. } = Self::read(json, "")?;
        let version = Version::parse(config_version).ok_or_else(|| {
            Error::internal(format!("failed to convert cached result to config version \"{config_version}\""))
        })?;
        Ok(Self { result, version })
    }

    fn read(json: &Json, config_version: &str) -> Result<Self, Error> {
        let result = CniResult::parse(json, config_version)?;
        let declared = match json {
            Json::Object(keys) => keys.iter().rev().find(|(key, _)| key == "cniVersion").map(|(_, value)| value),
            _ => None,
        };
        let version = match declared {
            Some(Json::String(version)) if !version.is_empty() => version,
            _ => config_version,
        };
        let unknown = || Error::internal(format!("unsupported CNI result version \"{version}\""));
        Ok(Self { result, version: Version::parse(version).ok_or_else(unknown)? })
    }

    /// Returns the text of the result, without a newline at its end.
    ///
    /// # Errors
    /// Code 999: the version is 0.1.0 or 0.2.0, and the result has no address.
    pub fn to_json(&self) -> Result<String, Error> {
        self.result.to_json(self.version)
    }

    /// Returns the result as a value, for `prevResult` and for the cache.
    ///
    /// # Errors
    /// As [`Outcome::to_json`].
    pub fn to_value(&self) -> Result<Value, Error> {
        let tree = self.result.to_tree(self.version)?;
        serde_json::to_value(tree).map_err(|error| Error::internal(error.to_string()))
    }
}
