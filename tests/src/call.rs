//! One call of a plugin, and its answer.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One call of a plugin: program, `CNI_*` environment and stdin.
#[derive(Debug, Clone)]
pub struct Call {
    program: PathBuf,
    environment: BTreeMap<String, String>,
    stdin: Vec<u8>,
}

impl Call {
    /// Makes a call of `plugin` in `bin`. `CNI_PATH` is `bin` alone.
    pub fn new(bin: &Path, plugin: &str, verb: &str, stdin: impl Into<Vec<u8>>) -> Self {
        let call = Self { program: bin.join(plugin), environment: BTreeMap::new(), stdin: stdin.into() };
        call.env("CNI_COMMAND", verb).env("CNI_PATH", &bin.to_string_lossy())
    }

    /// Sets the attachment: container ID, namespace path and interface name.
    #[must_use]
    pub fn attachment(self, container: &str, netns: &str, interface: &str) -> Self {
        self.env("CNI_CONTAINERID", container).env("CNI_NETNS", netns).env("CNI_IFNAME", interface)
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.environment.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Removes a variable.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.environment.remove(key);
        self
    }

    /// Returns the plugin's path.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Returns the environment of the call, without `PATH`.
    pub fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }

    /// Returns the plugin's standard input.
    pub fn stdin(&self) -> &[u8] {
        &self.stdin
    }
}

/// The answer of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Exit status: 124 after a kill for lateness (120 s), -1 after a kill by another signal.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Answer {
    /// Returns the result of a call that must succeed; `null` if the plugin printed nothing.
    ///
    /// # Errors
    /// The plugin failed, or printed something else than JSON.
    pub fn success(&self) -> Result<Value> {
        anyhow::ensure!(self.status == 0, "plugin failed with status {}: {} {}", self.status, self.stdout, self.stderr);
        if self.stdout.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&self.stdout).with_context(|| format!("plugin printed no JSON: {}", self.stdout))
    }

    /// Returns the standard output of a command that must succeed.
    ///
    /// # Errors
    /// The command failed.
    pub fn printed(&self) -> Result<&str> {
        anyhow::ensure!(self.status == 0, "status {}: {}{}", self.status, self.stdout, self.stderr);
        Ok(&self.stdout)
    }

    /// Returns the JSON that a command printed, whatever its status.
    ///
    /// # Errors
    /// The command printed something else than JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout).with_context(|| format!("no JSON: {self:?}"))
    }

    /// Returns all printed words in one line: standard output first, then standard error.
    pub fn words(&self) -> String {
        crate::flat(&format!("{}\n{}", self.stdout, self.stderr))
    }
}
