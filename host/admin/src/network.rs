//! Network configurations as operators have them: one plugin's, or a list.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::Path;

/// What one plugin of a network reads on standard input.
#[derive(Clone, Debug)]
pub struct Network {
    /// The file that it was in, for messages.
    pub label: String,
    /// The configuration: of a list, the plugin's entry with the name and version of the list.
    pub config: Value,
}

impl Network {
    /// Reads a file for `plugin`. A configuration of a single plugin is taken as it is; of a list, the first entry that
    /// names the plugin as its `type` or `ipam.type`.
    ///
    /// # Errors
    /// The file can't be read, is no network configuration, or has nothing for this plugin.
    pub fn read(path: &Path, plugin: &str) -> Result<Self> {
        let label = path.display().to_string();
        let text = std::fs::read(path).with_context(|| format!("network configuration {label}"))?;
        let file: Value =
            serde_json::from_slice(&text).with_context(|| format!("network configuration {label} is no JSON"))?;
        ensure!(file.is_object(), "network configuration {label} is no object");
        let config = match file.get("plugins") {
            None => file,
            Some(Value::Array(entries)) => entry(&file, entries, plugin, &label)?,
            Some(_) => bail!("network configuration {label}: \"plugins\" is no list"),
        };
        ensure!(config.get("name").is_some_and(Value::is_string), "network configuration {label} has no \"name\"");
        Ok(Self { label, config })
    }

    /// A text of the configuration; empty if it is absent or no text.
    pub fn text(&self, pointer: &str) -> &str {
        self.config.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// What policies take their values from.
    pub fn json(&self) -> postern_cni::Json {
        self.config.clone().into()
    }
}

fn entry(list: &Value, entries: &[Value], plugin: &str, label: &str) -> Result<Value> {
    let names = |entry: &&Value| {
        ["/type", "/ipam/type"].iter().any(|at| entry.pointer(at).and_then(Value::as_str) == Some(plugin))
    };
    let Some(Value::Object(mut entry)) = entries.iter().find(names).cloned() else {
        let types: Vec<&str> = entries.iter().filter_map(|entry| entry.get("type").and_then(Value::as_str)).collect();
        bail!(
            "network configuration {label} has no plugin \"{plugin}\", only {}; --name says under which name it is there",
            types.join(", ")
        );
    };
    for key in ["name", "cniVersion"] {
        if let Some(value) = list.get(key) {
            entry.insert(key.to_owned(), value.clone());
        }
    }
    Ok(Value::Object(entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, plugin: &str) -> Result<Network> {
        let path = std::env::temp_dir().join(format!("postern-network-{}-{}", std::process::id(), text.len()));
        std::fs::write(&path, text).unwrap();
        let network = Network::read(&path, plugin);
        std::fs::remove_file(&path).unwrap();
        network
    }

    #[test]
    fn takes_the_plugins_entry_of_a_list() {
        let list = r#"{"cniVersion":"1.0.0","name":"net","plugins":[
            {"type":"bridge","bridge":"br1","ipam":{"type":"host-local"}},{"type":"portmap"}]}"#;
        for plugin in ["bridge", "host-local"] {
            let network = read(list, plugin).unwrap();
            assert_eq!((network.text("/name"), network.text("/cniVersion")), ("net", "1.0.0"));
            assert_eq!((network.text("/bridge"), network.text("/absent")), ("br1", ""));
        }
        assert!(read(list, "ptp").unwrap_err().to_string().contains("only bridge, portmap"));
    }

    #[test]
    fn takes_a_single_configuration_as_it_is() {
        assert_eq!(read(r#"{"name":"net","type":"other"}"#, "bridge").unwrap().text("/type"), "other");
        for bad in ["", "[]", "{}", r#"{"name":"n","plugins":{}}"#] {
            assert!(read(bad, "bridge").is_err(), "{bad}");
        }
    }
}
