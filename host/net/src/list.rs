//! A network's list of plugins, as libcni reads it.

use crate::{Attachment, Outcome, write_whole};
use postern_cni::{Error, NumericVersion, Version, quote, unicode};
use serde_json::{Map, Value};
use std::fmt;

/// A network: its plugins in order.
///
/// Keys of the list are matched exactly. Keys of a plugin are matched without regard to upper and lower case. Native
/// runtimes match keys in the same way.
#[derive(Clone, Debug, PartialEq)]
pub struct List {
    /// The network's name.
    pub name: String,
    /// The version for all plugins; empty if the list has no version, which means 0.1.0.
    pub version: String,
    /// True if CHECK does nothing and succeeds.
    pub disable_check: bool,
    /// True if GC does nothing and succeeds.
    pub disable_gc: bool,
    /// True if plugins come from the list alone, and not from files of a directory.
    pub only_inlined: bool,
    /// The plugins.
    pub plugins: Vec<Plugin>,
    /// The text of the list's file. The cache keeps this text.
    pub text: Vec<u8>,
}

/// One plugin of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Plugin {
    /// The name of the program: `type`.
    pub program: String,
    /// The entry's own `name`, for messages; mostly empty.
    pub name: String,
    /// The capabilities that the entry declares with `true`.
    capabilities: Vec<String>,
    config: Map<String, Value>,
}

impl List {
    /// Reads a list file's text. The list may have no plugins: a directory can add some.
    ///
    /// # Errors
    /// Code 6 and 7, in libcni's words.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        let wrong = |what: String| Error::config(format!("error parsing configuration list: {what}"));
        let list = match serde_json::from_str(&unicode::json(text)) {
            Ok(Value::Object(list)) => list,
            Ok(Value::Null) => Map::new(),
            Ok(other) => return Err(wrong(format!("it is no object but {}", go_type(&other)))),
            Err(error) => return Err(Error::decoding(format!("error parsing configuration list: {error}"))),
        };
        let name = match list.get("name") {
            Some(Value::String(name)) => name.clone(),
            None => return Err(wrong("no name".to_owned())),
            Some(other) => return Err(wrong(format!("invalid name type {}", go_type(other)))),
        };
        let version = version(&list).map_err(wrong)?;
        let switch = |key| switch(&list, key).map_err(wrong);
        let (disable_check, disable_gc) = (switch("disableCheck")?, switch("disableGC")?);
        let only_inlined = switch("loadOnlyInlinedPlugins")?;
        let plugins = match list.get("plugins") {
            None if only_inlined => {
                return Err(wrong("`loadOnlyInlinedPlugins` is true, and no 'plugins' key".to_owned()));
            }
            None => Vec::new(),
            Some(Value::Array(plugins)) if plugins.is_empty() => return Err(wrong("no plugins in list".to_owned())),
            Some(Value::Array(plugins)) => plugins
                .iter()
                .enumerate()
                .map(|(at, plugin)| {
                    Plugin::of(plugin).map_err(|error| error.context(format!("failed to parse plugin config {at}")))
                })
                .collect::<Result<_, _>>()?,
            Some(other) => return Err(wrong(format!("invalid 'plugins' type {}", go_type(other)))),
        };
        Ok(Self { name, version, disable_check, disable_gc, only_inlined, plugins, text: text.to_vec() })
    }

    /// Makes a list of a single plugin. The list has the plugin's name and version.
    ///
    /// # Errors
    /// As [`List::parse`].
    pub fn of_single(plugin: &Plugin) -> Result<Self, Error> {
        let mut list = Map::new();
        list.insert("name".to_owned(), Value::from(plugin.name.as_str()));
        list.insert("cniVersion".to_owned(), Value::from(plugin.text("cniVersion")?.unwrap_or_default()));
        list.insert("plugins".to_owned(), Value::Array(vec![Value::Object(plugin.config.clone())]));
        Self::parse(Value::Object(list).to_string().as_bytes())
    }

    /// True if the list's version is the given version or a later version.
    ///
    /// # Errors
    /// Code 6: the text is no version.
    pub fn has(&self, version: Version) -> Result<bool, Error> {
        Ok(NumericVersion::parse(&self.version)? >= version.numeric())
    }
}

impl Plugin {
    /// Reads the text of a file with a single plugin.
    ///
    /// # Errors
    /// Code 6 and 7, in libcni's words.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        let value = serde_json::from_str(&unicode::json(text))
            .map_err(|error| Error::decoding(format!("error parsing configuration: {error}")))?;
        Self::of(&value)
    }

    fn of(value: &Value) -> Result<Self, Error> {
        let wrong = |what: String| Error::config(format!("error parsing configuration: {what}"));
        let config = match value {
            Value::Object(config) => config.clone(),
            Value::Null => Map::new(),
            other => return Err(wrong(format!("it is no object but {}", go_type(other)))),
        };
        let mut plugin = Self { program: String::new(), name: String::new(), capabilities: Vec::new(), config };
        plugin.program = plugin.text("type")?.unwrap_or_default();
        plugin.name = plugin.text("name")?.unwrap_or_default();
        match plugin.get("capabilities") {
            None | Some(Value::Null) => {}
            Some(Value::Object(capabilities)) => {
                let declared = capabilities.iter().filter_map(|(name, is_on)| match is_on {
                    Value::Bool(false) | Value::Null => None,
                    Value::Bool(true) => Some(Ok(name.clone())),
                    other => Some(Err(wrong(format!("capability {} is {}, no bool", quote(name), go_type(other))))),
                });
                plugin.capabilities = declared.collect::<Result<_, _>>()?;
            }
            Some(other) => return Err(wrong(format!("\"capabilities\" is {}, no object", go_type(other)))),
        }
        match plugin.program.is_empty() {
            true => Err(wrong("missing 'type'".to_owned())),
            false => Ok(plugin),
        }
    }

    /// Returns the name of the IPAM program that the plugin calls, if its entry names one.
    pub fn ipam(&self) -> Option<&str> {
        let Some(Value::Object(ipam)) = self.get("ipam") else { return None };
        let kind = ipam.iter().rev().find(|(name, _)| name.eq_ignore_ascii_case("type"))?.1.as_str()?;
        Some(kind).filter(|kind| !kind.is_empty())
    }

    /// Returns the value of the last key that equals `key` without regard to upper and lower case.
    fn get(&self, key: &str) -> Option<&Value> {
        self.config.iter().rev().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value)
    }

    fn text(&self, key: &str) -> Result<Option<String>, Error> {
        match self.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => {
                let message = format!("error parsing configuration: {} is {}, no string", quote(key), go_type(other));
                Err(Error::config(message))
            }
        }
    }

    /// Returns the plugin's standard input: its entry with the list's name and version. `previous` becomes
    /// `prevResult`. The attachment's values of capabilities that the plugin declares become `runtimeConfig`.
    ///
    /// # Errors
    /// `previous` can't be expressed in its CNI version.
    pub fn input(
        &self,
        list: &List,
        previous: Option<&Outcome>,
        attachment: Option<&Attachment>,
    ) -> Result<Map<String, Value>, Error> {
        let mut input = self.config.clone();
        input.insert("name".to_owned(), list.name.clone().into());
        input.insert("cniVersion".to_owned(), list.version.clone().into());
        if let Some(previous) = previous {
            input.insert("prevResult".to_owned(), previous.to_value()?);
        }
        let given = attachment.map(|attachment| &attachment.capability_args).into_iter().flatten();
        let declared = given.filter(|(name, _)| self.capabilities.contains(name));
        let declared: Map<String, Value> = declared.map(|(name, value)| (name.clone(), value.clone())).collect();
        if !declared.is_empty() {
            input.insert("runtimeConfig".to_owned(), Value::Object(declared));
        }
        write_whole(&mut input);
        Ok(input)
    }
}

/// Writes the plugin for messages: `type="bridge"`, and the entry's name if there is one.
impl fmt::Display for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "type={}", quote(&self.program))?;
        match self.name.is_empty() {
            true => Ok(()),
            false => write!(f, " name={}", quote(&self.name)),
        }
    }
}

/// Returns the version for the plugins: the highest in `cniVersion` and `cniVersions` that this library knows. Without
/// `cniVersions`, `cniVersion` counts as it is, and the plugins judge it.
///
/// # Errors
/// The fault of the list, in libcni's words.
pub fn version(list: &Map<String, Value>) -> Result<String, String> {
    let given = match list.get("cniVersion") {
        None => "",
        Some(Value::String(version)) => version,
        Some(other) => return Err(format!("invalid cniVersion type {}", go_type(other))),
    };
    let candidates = match list.get("cniVersions") {
        None => return Ok(given.to_owned()),
        Some(Value::Array(candidates)) => candidates,
        Some(other) => return Err(format!("invalid type for cniVersions: {}", go_type(other))),
    };
    let mut best: Option<(NumericVersion, &str)> = None;
    let mut consider = |number: NumericVersion, text| {
        if number <= Version::LATEST.numeric() && best.is_none_or(|(best, _)| number >= best) {
            best = Some((number, text));
        }
    };
    for (at, candidate) in candidates.iter().enumerate() {
        let Value::String(text) = candidate else {
            return Err(format!("invalid type for cniVersions index {at}: {}", go_type(candidate)));
        };
        let number = NumericVersion::parse(text);
        let number = number.map_err(|error| format!("invalid cniVersions entry {text} at index {at}: {error}"))?;
        consider(number, text);
    }
    if !given.is_empty() {
        let number = NumericVersion::parse(given);
        consider(number.map_err(|error| format!("invalid cniVersion {given}: {error}"))?, given);
    }
    Ok(best.map_or(given, |(_, text)| text).to_owned())
}

/// Reads a key that is `true` or `false`, as JSON or as text.
fn switch(list: &Map<String, Value>, key: &str) -> Result<bool, String> {
    match list.get(key) {
        None => Ok(false),
        Some(Value::Bool(is_on)) => Ok(*is_on),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(Value::String(text)) => Err(format!("invalid value {} for {key}", quote(&text.to_lowercase()))),
        Some(other) => Err(format!("invalid type {} for {key}", go_type(other))),
    }
}

/// Returns the name that libcni's messages have for a value's type.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(list: &Value) -> Result<List, Error> {
        List::parse(list.to_string().as_bytes())
    }

    #[test]
    fn the_highest_version_that_is_known() {
        let version = |list: Value| parse(&list).unwrap().version;
        assert_eq!(version(json!({"name": "n", "cniVersion": "9.0.0"})), "9.0.0");
        assert_eq!(version(json!({"name": "n", "cniVersions": ["0.3.1", "1.0.0", "9.0.0"]})), "1.0.0");
        assert_eq!(version(json!({"name": "n", "cniVersion": "1.1.0", "cniVersions": ["0.3.1"]})), "1.1.0");
        assert_eq!(version(json!({"name": "n", "cniVersion": "9.0.0", "cniVersions": ["8.0.0"]})), "9.0.0");
        assert_eq!(version(json!({"name": "n", "cniVersions": []})), "");
    }

    #[test]
    fn what_is_wrong_is_told_in_the_words_of_runtimes() {
        for (list, message) in [
            (json!({}), "no name"),
            (json!({"name": 1}), "invalid name type float64"),
            (json!({"name": "n", "cniVersion": []}), "invalid cniVersion type []interface {}"),
            (json!({"name": "n", "cniVersions": {}}), "invalid type for cniVersions: map[string]interface {}"),
            (json!({"name": "n", "cniVersions": ["1.0.0", null]}), "invalid type for cniVersions index 1: <nil>"),
            (json!({"name": "n", "disableGC": "yes"}), r#"invalid value "yes" for disableGC"#),
            (json!({"name": "n", "disableCheck": 1}), "invalid type float64 for disableCheck"),
            (json!({"name": "n", "plugins": []}), "no plugins in list"),
            (json!({"name": "n", "plugins": "x"}), "invalid 'plugins' type string"),
            (
                json!({"name": "n", "loadOnlyInlinedPlugins": "TRUE"}),
                "`loadOnlyInlinedPlugins` is true, and no 'plugins' key",
            ),
        ] {
            assert_eq!(parse(&list).unwrap_err().msg, format!("error parsing configuration list: {message}"));
        }
        let error = parse(&json!({"name": "n", "plugins": [{"type": "a"}, {}]})).unwrap_err();
        assert_eq!(error.msg, "failed to parse plugin config 1: error parsing configuration: missing 'type'");
    }

    #[test]
    fn a_plugin_gets_the_capabilities_that_it_declares() {
        let list = parse(&json!({"name": "n", "cniVersion": "1.0.0", "plugins": [
            {"Type": "a", "capabilities": {"mac": true, "ips": false}, "runtimeConfig": {"old": 1}},
        ]}))
        .unwrap();
        let mut attachment = Attachment::new("c", "/n", "eth0");
        attachment.capability_args = json!({"mac": "x", "ips": [], "bandwidth": {}}).as_object().unwrap().clone();
        let input = |attachment| Value::Object(list.plugins[0].input(&list, None, attachment).unwrap());
        assert_eq!(input(Some(&attachment))["runtimeConfig"], json!({"mac": "x"}));
        assert_eq!(input(None)["runtimeConfig"], json!({"old": 1}));
        assert_eq!(list.plugins[0].program, "a");
    }
}
