//! The operator's settings for the whole node.
//!
//! ```toml
//! packet-filter = "nftables"        # for networks that name no packet filter
//! status = "strict"                 # STATUS fails whenever an ADD would fail
//! ```

use crate::error::ValueError;
use crate::prelude::*;
use crate::{FileError, PolicyError, Text};
use postern_types::Backend;
use toml::Table;

/// The file of the operator's settings for the whole node.
pub const NODE_FILE: &str = "/etc/postern/node.toml";

/// The keys that the file can have.
const PACKET_FILTER: &str = "packet-filter";
const STATUS: &str = "status";

/// The operator's settings for the whole node; absent settings are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSettings {
    /// The packet filter for networks that name no packet filter.
    pub packet_filter: Option<Backend>,
    /// True if STATUS fails whenever an ADD would fail. Otherwise STATUS fails only when the native plugins' STATUS
    /// fails.
    pub is_status_strict: bool,
}

impl NodeSettings {
    /// Reads the text of the file.
    ///
    /// # Errors
    /// [`PolicyError::File`]: the key, its fault, and the possible values.
    pub fn parse(file: &Text) -> Result<Self, PolicyError> {
        let wrong = |reason: FileError| PolicyError::File { path: file.path.clone(), reason };
        let table: Table =
            toml::from_str(&file.text).map_err(|e| wrong(FileError::Toml(e.to_string().trim_end().to_owned())))?;
        let mut settings = Self::default();
        for (key, value) in &table {
            let place = [PACKET_FILTER, STATUS].into_iter().find(|known| key == known).ok_or_else(|| {
                let possible = Vec::from([PACKET_FILTER, STATUS]);
                wrong(FileError::Unknown { place: "the file".to_owned(), key: key.clone(), possible })
            })?;
            let text = value.as_str().ok_or_else(|| {
                let found = value.type_str().to_owned();
                wrong(FileError::Type { place: place.to_owned(), wanted: "a text", found })
            })?;
            let unknown = |possible| {
                let error = ValueError::Kind { text: text.to_owned(), possible };
                wrong(FileError::Value { place: place.to_owned(), error })
            };
            if place == PACKET_FILTER {
                let possible = "packet filter: it can be \"nftables\" or \"iptables\"";
                settings.packet_filter = Some(Backend::parse(text).ok_or_else(|| unknown(possible))?);
            } else {
                settings.is_status_strict = match text {
                    "strict" => true,
                    "native" => false,
                    _ => return Err(unknown("setting of STATUS: it can be \"strict\" or \"native\"")),
                };
            }
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_sets_the_default() {
        let read = |text: &str| NodeSettings::parse(&Text { path: NODE_FILE.to_owned(), text: text.to_owned() });
        assert_eq!(read("").unwrap().packet_filter, None);
        assert_eq!(read("packet-filter = \"nftables\"").unwrap().packet_filter, Some(Backend::Nftables));
        assert_eq!(read("packet-filter = \"iptables\"").unwrap().packet_filter, Some(Backend::Iptables));
        assert!(!read("packet-filter = \"iptables\"").unwrap().is_status_strict);
        assert!(!read("status = \"native\"").unwrap().is_status_strict);
        assert!(read("status = \"strict\"").unwrap().is_status_strict);
        for (text, words) in [
            ("status = \"no\"", "status: \"no\" is no setting of STATUS: it can be \"strict\" or"),
            ("status = 1", "status: it must be a text, not integer"),
            ("packet-filter = \"pf\"", "packet-filter: \"pf\" is no packet filter: it can be \"nftables\" or"),
            ("packet-filter = true", "packet-filter: it must be a text, not boolean"),
            (
                "packet_filter = \"nftables\"",
                "unknown field `packet_filter`, expected one of `packet-filter`, `status`",
            ),
            ("packet-filter", "TOML parse error"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with("policy /etc/postern/node.toml: ") && error.contains(words), "{error}");
        }
    }
}
