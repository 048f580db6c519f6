//! The vocabulary of tests: a network of a node, and the network's attachments. A test says what a runtime does:
//!
//! ```no_run
//! # use postern_tests::{Network, Node};
//! # fn test() -> anyhow::Result<()> {
//! let node = Node::new()?;
//! node.add_container("c1")?;
//! let ipam = serde_json::json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
//! let network = Network::new(&node, &serde_json::json!({"type": "bridge", "bridge": "br9", "ipam": ipam}))?;
//! network.add("c1")?.check()?.del()
//! # }
//! ```

use crate::{Answer, Call, Node, merge, plugin_bin};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A network of a node: its plugins in the order of the list, each with its configuration.
#[derive(Debug, Clone)]
pub struct Network {
    /// The node.
    pub node: Node,
    plugins: Vec<Plugin>,
    interface: String,
}

#[derive(Debug, Clone)]
struct Plugin {
    bin: PathBuf,
    config: Value,
}

impl Network {
    /// Makes a network of Postern's plugins. `config` is one plugin's configuration, an array of configurations, or a
    /// list with the key `plugins`. The default `cniVersion` is 1.1.0, the default `name` is `net`. The interface is
    /// `eth0`.
    ///
    /// # Errors
    /// There are no plugins under test.
    pub fn new(node: &Node, config: &Value) -> Result<Self> {
        let bin = plugin_bin()?;
        let common = [("cniVersion", "1.1.0"), ("name", "net")]
            .map(|(key, usual)| (key, config.get(key).cloned().unwrap_or_else(|| json!(usual))));
        let configs = match config.get("plugins") {
            Some(plugins) => plugins.as_array().cloned().context("`plugins` is no array")?,
            None => config.as_array().cloned().unwrap_or_else(|| vec![config.clone()]),
        };
        ensure!(!configs.is_empty(), "a network without plugins: {config}");
        let plugins = configs.into_iter().map(|mut config| {
            // An explicit null stays. A merge patch would remove it.
            for (key, usual) in &common {
                if let Some(keys) = config.as_object_mut() {
                    keys.entry(*key).or_insert_with(|| usual.clone());
                }
            }
            Plugin { bin: bin.clone(), config }
        });
        Ok(Self { node: node.clone(), plugins: plugins.collect(), interface: "eth0".to_owned() })
    }

    /// Takes all plugins from this directory.
    #[must_use]
    pub fn by(mut self, bin: &Path) -> Self {
        self.plugins.iter_mut().for_each(|plugin| bin.clone_into(&mut plugin.bin));
        self
    }

    /// Takes the plugin at this place of the list from this directory.
    #[must_use]
    pub fn at_by(mut self, at: usize, bin: &Path) -> Self {
        self.change(at, |plugin| bin.clone_into(&mut plugin.bin));
        self
    }

    /// Sets the name of the interface in containers.
    #[must_use]
    pub fn interface(mut self, name: &str) -> Self {
        name.clone_into(&mut self.interface);
        self
    }

    /// Changes the configuration of each plugin: a merge patch (RFC 7386).
    #[must_use]
    pub fn with(mut self, patch: &Value) -> Self {
        self.plugins.iter_mut().for_each(|plugin| merge(&mut plugin.config, patch));
        self
    }

    /// Changes the configuration of the plugin at this place of the list: a merge patch.
    #[must_use]
    pub fn at_with(mut self, at: usize, patch: &Value) -> Self {
        self.change(at, |plugin| merge(&mut plugin.config, patch));
        self
    }

    /// Changes the plugin at this place of the list. Panics if the list is shorter.
    fn change(&mut self, at: usize, change: impl FnMut(&mut Plugin)) {
        let count = self.plugins.len();
        assert!(at < count, "the list has {count} plugins, and none at {at}");
        self.plugins.get_mut(at).into_iter().for_each(change);
    }

    /// Returns the number of plugins.
    pub fn len(&self) -> usize {
        self.plugins.len()
    }

    /// True if the list has no plugin.
    pub fn is_empty(&self) -> bool {
        self.plugins.is_empty()
    }

    /// Returns the configuration of the plugin at this place of the list, with a merge patch on it.
    ///
    /// # Errors
    /// The list is shorter.
    pub fn config(&self, at: usize, patch: &Value) -> Result<Value> {
        let mut config = self.plugins.get(at).context("no plugin at this place of the list")?.config.clone();
        merge(&mut config, patch);
        Ok(config)
    }

    /// Returns the call of one plugin, with a merge patch on its configuration. For GC and STATUS, the variables of the
    /// attachment are set but empty, as containerd sends them.
    ///
    /// # Errors
    /// The list is shorter.
    pub fn request(&self, at: usize, verb: &str, container: &str, patch: &Value) -> Result<Call> {
        let config = self.config(at, patch)?;
        let plugin = config.get("type").and_then(Value::as_str).unwrap_or_default();
        let bin = self.plugins.get(at).map_or_else(PathBuf::new, |plugin| plugin.bin.clone());
        let call = Call::new(&bin, plugin, verb, config.to_string());
        Ok(match verb {
            "GC" | "STATUS" => call.attachment("", "", ""),
            "VERSION" => call,
            _ => call.attachment(container, &self.node.netns(container), &self.interface),
        })
    }

    /// Calls the first plugin of the list.
    ///
    /// # Errors
    /// The plugin can't be started. A failure of the plugin is an answer, not an error.
    pub fn call(&self, verb: &str, container: &str) -> Result<Answer> {
        self.call_at(0, verb, container, &json!({}))
    }

    /// Calls the plugin at this place of the list, with a merge patch on its configuration.
    ///
    /// # Errors
    /// As [`Network::call`].
    pub fn call_at(&self, at: usize, verb: &str, container: &str, patch: &Value) -> Result<Answer> {
        self.node.call(&self.request(at, verb, container, patch)?)
    }

    /// Attaches an existing container: ADD of each plugin, with the previous plugin's result.
    ///
    /// # Errors
    /// The first failure. The earlier ADDs stay: the test can call DEL on [`Network::attachment`].
    pub fn add(&self, container: &str) -> Result<Attachment> {
        self.add_first(self.plugins.len(), container)
    }

    /// Attaches a container with only the first `count` plugins of the list, like a runtime that stops then.
    ///
    /// # Errors
    /// As [`Network::add`].
    pub fn add_first(&self, count: usize, container: &str) -> Result<Attachment> {
        let mut attachment = self.attachment(container);
        (0..count).try_for_each(|at| attachment.add_at(at))?;
        Ok(attachment)
    }

    /// Returns an attachment without a result, as after a failed ADD.
    pub fn attachment(&self, container: &str) -> Attachment {
        Attachment { network: self.clone(), container: container.to_owned(), result: Value::Null }
    }

    fn step(&self, verb: &str, at: usize, container: &str) -> String {
        let plugin = self.plugins.get(at).and_then(|plugin| plugin.config.get("type")).and_then(Value::as_str);
        format!("{verb} of {} for {container}", plugin.unwrap_or("a plugin"))
    }
}

/// A container's attachment to a network.
#[derive(Debug, Clone)]
pub struct Attachment {
    /// The network.
    pub network: Network,
    /// The container.
    pub container: String,
    /// The result of the last ADD; `null` before the first ADD.
    pub result: Value,
}

impl Attachment {
    /// Returns the keys that a plugin gets besides its configuration.
    fn previous(&self) -> Value {
        if self.result.is_null() { json!({}) } else { json!({"prevResult": self.result}) }
    }

    /// Returns the same attachment, with the plugins of this directory.
    #[must_use]
    pub fn by(&self, bin: &Path) -> Self {
        Self { network: self.network.clone().by(bin), ..self.clone() }
    }

    /// Returns the call of one plugin, with the result as `prevResult`.
    ///
    /// # Errors
    /// The list is shorter.
    pub fn request(&self, at: usize, verb: &str) -> Result<Call> {
        self.network.request(at, verb, &self.container, &self.previous())
    }

    /// Calls the plugin at this place of the list, with the result as `prevResult`.
    ///
    /// # Errors
    /// As [`Network::call`].
    pub fn call_at(&self, at: usize, verb: &str) -> Result<Answer> {
        self.network.node.call(&self.request(at, verb)?)
    }

    /// Calls ADD of the plugin at this place of the list, and keeps its result.
    ///
    /// # Errors
    /// A failure, which leaves the result as it was.
    pub fn add_at(&mut self, at: usize) -> Result<()> {
        let answer = self.call_at(at, "ADD")?;
        self.result = answer.success().with_context(|| self.network.step("ADD", at, &self.container))?;
        Ok(())
    }

    /// Calls CHECK of each plugin.
    ///
    /// # Errors
    /// The first failure.
    pub fn check(self) -> Result<Self> {
        for at in 0..self.network.len() {
            let answer = self.call_at(at, "CHECK")?;
            answer.success().with_context(|| self.network.step("CHECK", at, &self.container))?;
        }
        Ok(self)
    }

    /// Calls DEL of each plugin, the last plugin first.
    ///
    /// # Errors
    /// The first failure. [`Node::delete`] gives native plugins a second try.
    pub fn del(&self) -> Result<()> {
        (0..self.network.len()).rev().try_for_each(|at| {
            self.network
                .node
                .delete(&self.request(at, "DEL")?)
                .with_context(|| self.network.step("DEL", at, &self.container))
        })
    }

    /// Returns the addresses of the result, with their prefix lengths.
    pub fn addresses(&self) -> Vec<String> {
        let ips = self.result.get("ips").and_then(Value::as_array).into_iter().flatten();
        ips.filter_map(|ip| ip.get("address")?.as_str()).map(str::to_owned).collect()
    }

    /// Returns the addresses of the result, without their prefix lengths.
    pub fn bare_addresses(&self) -> Vec<String> {
        let bare = |address: &String| address.split('/').next().unwrap_or_default().to_owned();
        self.addresses().iter().map(bare).collect()
    }
}
