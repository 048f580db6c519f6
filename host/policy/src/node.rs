//! The operator's settings for the whole node.
//!
//! ```toml
//! packet-filter = "nftables"        # for networks that name no packet filter
//! status = "strict"                 # STATUS fails whenever an ADD would fail
//! network-directories = ["/etc/cni/net.d"]            # for commands of people
//! plugin-directories = ["/opt/cni/bin", "/usr/lib/cni"]
//! ```

use crate::error::ValueError;
use crate::prelude::*;
use crate::{FileError, PolicyError, Text};
use postern_types::Backend;
use toml::{Table, Value};

/// The file of the operator's settings for the whole node.
pub const NODE_FILE: &str = "/etc/postern/node.toml";

/// The keys that the file can have.
const PACKET_FILTER: &str = "packet-filter";
const STATUS: &str = "status";
const NETWORK_DIRECTORIES: &str = "network-directories";
const PLUGIN_DIRECTORIES: &str = "plugin-directories";
const KEYS: [&str; 4] = [PACKET_FILTER, STATUS, NETWORK_DIRECTORIES, PLUGIN_DIRECTORIES];

/// The operator's settings for the whole node; absent settings are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSettings {
    /// The packet filter for networks that name no packet filter.
    pub packet_filter: Option<Backend>,
    /// True if STATUS fails whenever an ADD would fail. Otherwise STATUS fails only when the native plugins' STATUS
    /// fails.
    pub is_status_strict: bool,
    /// The runtimes' directories of network lists, in the order of their search. Empty without the key.
    pub network_directories: Vec<String>,
    /// The runtimes' directories of plugins, in the order of their search. Empty without the key.
    pub plugin_directories: Vec<String>,
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
            let place = KEYS.into_iter().find(|known| key == known).ok_or_else(|| {
                wrong(FileError::Unknown { place: "the file".to_owned(), key: key.clone(), possible: Vec::from(KEYS) })
            })?;
            settings.set(place, value).map_err(wrong)?;
        }
        Ok(settings)
    }

    fn set(&mut self, key: &'static str, value: &Value) -> Result<(), FileError> {
        let unknown = |text: &str, possible| {
            let error = ValueError::Kind { text: text.to_owned(), possible };
            FileError::Value { place: key.to_owned(), error }
        };
        match key {
            NETWORK_DIRECTORIES => self.network_directories = directories(key, value)?,
            PLUGIN_DIRECTORIES => self.plugin_directories = directories(key, value)?,
            PACKET_FILTER => {
                let possible = "packet filter: it can be \"nftables\" or \"iptables\"";
                let text = text(key, value)?;
                self.packet_filter = Some(Backend::parse(text).ok_or_else(|| unknown(text, possible))?);
            }
            _ => {
                self.is_status_strict = match text(key, value)? {
                    "strict" => true,
                    "native" => false,
                    other => return Err(unknown(other, "setting of STATUS: it can be \"strict\" or \"native\"")),
                };
            }
        }
        Ok(())
    }
}

fn text<'v>(key: &str, value: &'v Value) -> Result<&'v str, FileError> {
    let wrong = || FileError::Type { place: key.to_owned(), wanted: "a text", found: value.type_str().to_owned() };
    value.as_str().ok_or_else(wrong)
}

/// Reads a list of directories. A colon separates the directories of `CNI_PATH`, so that a path can't have one.
fn directories(key: &str, value: &Value) -> Result<Vec<String>, FileError> {
    let wanted = "a list of directories, [\"/…\"]";
    let wrong = || FileError::Type { place: key.to_owned(), wanted, found: value.type_str().to_owned() };
    let items = value.as_array().ok_or_else(wrong)?;
    if items.is_empty() {
        return Err(FileError::Empty(key.to_owned()));
    }
    let directory = |item: &Value| {
        let text = text(key, item)?;
        let is_plain = |c: char| c != ':' && !c.is_control();
        if text.starts_with('/') && text.chars().all(is_plain) && text.split('/').all(|part| part != "..") {
            return Ok(text.to_owned());
        }
        let possible = "directory: it can be an absolute path without \":\" and \"..\"";
        let error = ValueError::Kind { text: text.to_owned(), possible };
        Err(FileError::Value { place: key.to_owned(), error })
    };
    items.iter().map(directory).collect()
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
        let lists = read("network-directories = [\"/a\"]\nplugin-directories = [\"/b\", \"/c..d\"]").unwrap();
        assert_eq!(
            (lists.network_directories, lists.plugin_directories),
            (vec!["/a".into()], vec!["/b".into(), "/c..d".into()])
        );
        for (text, words) in [
            ("status = \"no\"", "status: \"no\" is no setting of STATUS: it can be \"strict\" or"),
            ("status = 1", "status: it must be a text, not integer"),
            ("packet-filter = \"pf\"", "packet-filter: \"pf\" is no packet filter: it can be \"nftables\" or"),
            ("packet-filter = true", "packet-filter: it must be a text, not boolean"),
            (
                "packet_filter = \"nftables\"",
                "unknown field `packet_filter`, expected one of `packet-filter`, `status`, `network-directories`",
            ),
            (
                "plugin-directories = \"/a\"",
                "plugin-directories: it must be a list of directories, [\"/…\"], not string",
            ),
            ("plugin-directories = []", "plugin-directories: the list is empty"),
            ("plugin-directories = [1]", "plugin-directories: it must be a text, not integer"),
            ("plugin-directories = [\"a\"]", "plugin-directories: \"a\" is no directory: it can be an absolute path"),
            ("plugin-directories = [\"/a:/b\"]", "\"/a:/b\" is no directory"),
            ("network-directories = [\"/a/../b\"]", "network-directories: \"/a/../b\" is no directory"),
            ("packet-filter", "TOML parse error"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with("policy /etc/postern/node.toml: ") && error.contains(words), "{error}");
        }
    }
}
