//! The keys of network configurations, as tables: one for each shipped plugin, and one for their common keys.
//!
//! `postern net validate` checks files with the tables, and `postern net schema` prints the tables as JSON Schemas.
//! Guests read their keys with hand-written code, to give the native plugins' messages. So a test of each guest
//! compares guest and table, in both directions (module and feature `agreement`).
//!
//! ```
//! let bridge = postern_keys::plugin("bridge").unwrap();
//! assert!(bridge.key("isGateway").is_some() && bridge.key("isGatway").is_none());
//! assert_eq!(postern_keys::nearest("isGatway", bridge.keys.iter().map(|key| key.name)), Some("isGateway"));
//! ```

#[cfg(feature = "agreement")]
pub mod agreement;
pub mod common;
mod key;
mod near;
mod plugins;
pub mod sample;
pub mod schema;

pub use key::{Form, Key, Kind};
pub use near::nearest;
pub use plugins::ALL;

use postern_cni::Version;

/// The place of a plugin in a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The plugin makes a link: it is the first plugin of a list.
    Main,
    /// The plugin changes the objects of earlier plugins, so it is never the first plugin.
    Chained,
    /// The plugin gives addresses. `ipam.type` names it, and its keys are in `ipam`.
    Ipam,
}

/// A plugin's use of `ipam`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delegation {
    /// The plugin does not use `ipam`.
    None,
    /// The plugin takes addresses from the plugin that `ipam.type` names, if there is one.
    Optional,
    /// The plugin takes addresses from the plugin that `ipam.type` names, and fails without an `ipam.type`.
    Required,
    /// The plugin passes `ipam` to its delegate, with a default for `type`.
    HandedOn,
}

/// The keys and properties of one plugin.
#[derive(Clone, Copy, Debug)]
pub struct Plugin {
    /// The name: `type`, or `ipam.type`.
    pub name: &'static str,
    /// The plugin's task, in a few words.
    pub about: &'static str,
    /// The web page that describes the native plugin's keys.
    pub source: &'static str,
    /// The plugin's place in a network.
    pub role: Role,
    /// The plugin's use of `ipam`.
    pub ipam: Delegation,
    /// The oldest CNI version that the plugin supports. The plugin supports all later versions too.
    pub since: Version,
    /// The plugin's own keys, beside the common keys.
    pub keys: &'static [Key],
    /// The plugin's keys in `runtimeConfig`. Each key is a capability of the same name.
    pub runtime: &'static [Key],
    /// The plugin's keys in `args.cni`.
    pub args: &'static [Key],
    /// The keys of a small configuration that works, beside `name`, `type` and `cniVersion`: a JSON object.
    pub example: &'static str,
}

impl Plugin {
    /// True if the plugin supports this version.
    pub fn supports(&self, version: Version) -> bool {
        version >= self.since
    }

    /// Returns the key with this name; case does not matter.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name.eq_ignore_ascii_case(name))
    }
}

/// Returns the table of a plugin.
pub fn plugin(name: &str) -> Option<&'static Plugin> {
    ALL.iter().copied().find(|plugin| plugin.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plugin_with_a_policy_has_a_table() {
        let guests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests");
        let mut shipped = std::fs::read_dir(guests)
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.path().join("policy.toml").is_file())
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect::<Vec<_>>();
        shipped.sort();
        let mut tables: Vec<&str> = ALL.iter().map(|plugin| plugin.name).collect();
        tables.sort_unstable();
        assert_eq!(tables, shipped);
    }

    #[test]
    fn names_and_samples_are_sound() {
        for plugin in ALL {
            assert!(sample::object(plugin.example).is_some(), "{}", plugin.name);
            for key in plugin.keys.iter().chain(plugin.runtime).chain(plugin.args) {
                let place = format!("{} {}", plugin.name, key.name);
                assert!(!key.about.is_empty() && !key.about.ends_with('.'), "{place}");
                assert!(
                    key.default.is_none_or(|text| serde_json::from_str::<serde_json::Value>(text).is_ok()),
                    "{place}"
                );
                assert!(key.with.is_none_or(|text| sample::object(text).is_some()), "{place}");
            }
        }
    }
}
