//! Network lists, and what a runtime would hand to each plugin of one (specification, sections 3 and 4 of 1.1.0).

use anyhow::{Context, Result, bail, ensure};
use postern_cni::{NumericVersion, Version};
use serde_json::{Map, Value};
use std::path::Path;

/// A network: a list of plugins, or a single configuration as a list of one.
#[derive(Clone, Debug)]
pub struct List {
    /// The file that it was in, for messages.
    pub label: String,
    /// The network's name, as it stands there.
    pub name: Value,
    /// The version that a runtime would choose; `None` if the file has none.
    pub version: Option<Value>,
    entries: Vec<Map<String, Value>>,
}

impl List {
    /// Reads a `.conflist` or `.conf`.
    ///
    /// # Errors
    /// The file can't be read, is no network, or has no plugins.
    pub fn read(path: &Path) -> Result<Self> {
        let label = path.display().to_string();
        let text = std::fs::read(path).with_context(|| format!("network {label}"))?;
        let file: Value = serde_json::from_slice(&text).with_context(|| format!("network {label} is no JSON"))?;
        let Value::Object(file) = file else { bail!("network {label} is no object") };
        let entries = match file.get("plugins") {
            None => vec![file.clone()],
            Some(Value::Array(entries)) => {
                let object = |entry: &Value| entry.as_object().cloned();
                let entries: Option<Vec<_>> = entries.iter().map(object).collect();
                entries.with_context(|| format!("network {label}: an entry of \"plugins\" is no object"))?
            }
            Some(_) => bail!("network {label}: \"plugins\" is no list"),
        };
        ensure!(!entries.is_empty(), "network {label} has no plugins");
        let list = Self {
            name: file.get("name").cloned().unwrap_or_default(),
            version: version(&file).with_context(|| format!("network {label}"))?,
            entries,
            label,
        };
        for (number, entry) in list.entries.iter().enumerate() {
            let named = entry.get("type").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
            ensure!(named, "network {}: plugin {} has no \"type\"", list.label, number + 1);
        }
        Ok(list)
    }

    /// The plugins' names, in order.
    pub fn plugins(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.get("type").and_then(Value::as_str).unwrap_or_default())
    }

    /// What plugin number `at` reads on standard input: its entry with the list's name and version, the result of the
    /// plugin before it, and of `arguments` those that the entry declares as capabilities.
    pub fn request(&self, at: usize, previous: Option<&Value>, arguments: &Map<String, Value>) -> Value {
        let mut request = self.entries.get(at).cloned().unwrap_or_default();
        let declared = request.remove("capabilities").unwrap_or_default();
        let declared = |name: &str| declared.get(name).and_then(Value::as_bool) == Some(true);
        let given: Map<String, Value> = arguments
            .iter()
            .filter(|(name, _)| declared(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !given.is_empty() {
            request.insert("runtimeConfig".to_owned(), Value::Object(given));
        }
        request.insert("name".to_owned(), self.name.clone());
        request.extend(self.version.clone().map(|version| ("cniVersion".to_owned(), version)));
        request.extend(previous.map(|result| ("prevResult".to_owned(), result.clone())));
        Value::Object(request)
    }
}

/// The highest of `cniVersion` and those of `cniVersions` that postern knows. A list that names none above leaves
/// `cniVersion` as it is, for the plugins to judge.
fn version(file: &Map<String, Value>) -> Result<Option<Value>> {
    let given = file.get("cniVersion").cloned();
    let Some(candidates) = file.get("cniVersions") else { return Ok(given) };
    let Value::Array(candidates) = candidates else { bail!("\"cniVersions\" is no list") };
    let mut best: Option<(NumericVersion, &str)> = None;
    for candidate in candidates.iter().chain(given.iter()) {
        let text = candidate.as_str().context("\"cniVersions\" has an entry that is no text")?;
        let number = NumericVersion::parse(text).map_err(anyhow::Error::msg)?;
        if number <= Version::LATEST && best.as_ref().is_none_or(|(best, _)| number > *best) {
            best = Some((number, text));
        }
    }
    Ok(best.map(|(_, text)| text.into()).or(given))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list(text: &Value) -> Result<List> {
        let text = text.to_string();
        let path = std::env::temp_dir().join(format!("postern-list-{}-{}", std::process::id(), sum(&text)));
        std::fs::write(&path, &text).unwrap();
        let list = List::read(&path);
        std::fs::remove_file(&path).unwrap();
        list
    }

    fn sum(text: &str) -> u64 {
        text.bytes().fold(7, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
    }

    fn arguments(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn a_plugin_gets_its_entry_with_what_is_the_lists() {
        let list = list(&json!({
            "cniVersion": "1.0.0", "name": "net", "disableCheck": true, "disableGC": true, "other": 1,
            "plugins": [
                {"type": "bridge", "bridge": "br0", "name": "mine", "cniVersion": "0.1.0", "args": {"a": 1}},
                {"type": "portmap", "capabilities": {"portMappings": true, "mac": false, "ips": "true"}},
            ],
        }))
        .unwrap();
        assert_eq!(list.plugins().collect::<Vec<_>>(), ["bridge", "portmap"]);
        assert_eq!(
            list.request(0, None, &Map::new()),
            json!({"type": "bridge", "bridge": "br0", "name": "net", "cniVersion": "1.0.0", "args": {"a": 1}})
        );
        let given = arguments(json!({"portMappings": [{"hostPort": 80}], "mac": "x", "ips": ["y"], "dns": {}}));
        assert_eq!(
            list.request(1, Some(&json!({"ips": []})), &given),
            json!({
                "type": "portmap", "name": "net", "cniVersion": "1.0.0", "prevResult": {"ips": []},
                "runtimeConfig": {"portMappings": [{"hostPort": 80}]},
            })
        );
        // A capability that nobody gives an argument for leaves no trace.
        let bare = list.request(1, None, &Map::new());
        assert!(bare.get("runtimeConfig").is_none() && bare.get("capabilities").is_none(), "{bare}");
    }

    #[test]
    fn a_single_configuration_is_a_list_of_one() {
        let single = json!({"name": "n", "type": "loopback"});
        let list = list(&single).unwrap();
        assert_eq!(list.plugins().collect::<Vec<_>>(), ["loopback"]);
        assert_eq!(list.request(0, None, &Map::new()), single);
        assert_eq!(list.request(7, None, &Map::new()), json!({"name": "n"}));
    }

    #[test]
    fn the_highest_version_that_is_known_is_taken() {
        let chosen = |version: Value, versions: Value| {
            let plugins = json!([{"type": "x"}]);
            list(&json!({"name": "n", "cniVersion": version, "cniVersions": versions, "plugins": plugins}))
                .map(|list| list.version.unwrap_or_default())
        };
        assert_eq!(chosen("0.4.0".into(), json!(["1.0.0", "0.3.1"])).unwrap(), "1.0.0");
        assert_eq!(chosen("0.4.0".into(), json!(["1.0.0", "1.1.0", "9.0.0"])).unwrap(), "1.1.0");
        assert_eq!(chosen("0.4.0".into(), json!([])).unwrap(), "0.4.0");
        assert_eq!(chosen("9.0.0".into(), json!(["8.0.0"])).unwrap(), "9.0.0");
        for bad in [json!("1.0.0"), json!([1]), json!(["x"])] {
            assert!(chosen("0.4.0".into(), bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_no_network_is_an_error() {
        for bad in [
            json!([]),
            json!({"name": "n"}),
            json!({"name": "n", "type": ""}),
            json!({"name": "n", "plugins": {}}),
            json!({"name": "n", "plugins": []}),
            json!({"name": "n", "plugins": [1]}),
            json!({"name": "n", "plugins": [{"type": "a"}, {}]}),
        ] {
            assert!(list(&bad).is_err(), "{bad}");
        }
    }
}
