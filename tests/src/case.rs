//! One differential case: a configuration and a sequence of calls. It runs with native plugins or with ours.

use crate::{Call, Names, Node};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The plugins that a run uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Native plugins for every step.
    Native,
    /// Our plugins, except for steps marked [`Flag::Native`].
    Ours,
}

/// A case. [`run`](Case::run) makes a tree for one side, which is compared with the other side's tree.
#[derive(Debug, Clone)]
pub struct Case {
    /// The name, as `group/what`.
    pub name: String,
    plugin: String,
    config: String,
    changed: Option<Value>,
    environment: Vec<(String, Option<String>)>,
    prepare: String,
    broken: String,
    steps: String,
    fast: bool,
}

/// A difference of a step from an ordinary call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// The native plugin is called, on our side too.
    Native,
    /// On our side, `CNI_PATH` has only plugins of the other kind: our main plugin calls a native IPAM plugin, and a
    /// native main plugin calls our IPAM plugin.
    OtherIpam,
    /// The step uses the changed configuration of [`Case::changed`].
    Changed,
    /// The step passes no `prevResult`.
    NoPrevious,
    /// `CNI_NETNS` is empty.
    EmptyNetns,
    /// `CNI_NETNS` is the node's own namespace.
    OwnNetns,
}

/// One step of a case, written `VERB[:CONTAINER[/INTERFACE]][@FLAG,FLAG...]`; `KILL:CONTAINER` removes a namespace, and
/// `BREAK` runs the script of [`Case::broken`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The verb, or `KILL` or `BREAK`.
    pub verb: String,
    /// The container, by default `c1`.
    pub container: String,
    /// The interface, by default `eth0`.
    pub interface: String,
    /// The differences from an ordinary call.
    pub flags: Vec<Flag>,
}

impl Case {
    /// Makes a case of `plugin` with a JSON configuration. The default steps are `ADD CHECK DEL DEL`.
    pub fn new(name: &str, plugin: &str, config: &Value) -> Self {
        Self::raw(name, plugin, &config.to_string())
    }

    /// Makes a case with any text as configuration.
    pub fn raw(name: &str, plugin: &str, config: &str) -> Self {
        Self {
            name: name.to_owned(),
            plugin: plugin.to_owned(),
            config: config.to_owned(),
            changed: None,
            environment: Vec::new(),
            prepare: String::new(),
            broken: String::new(),
            steps: "ADD CHECK DEL DEL".to_owned(),
            fast: false,
        }
    }

    /// Sets the steps, separated by blanks. Flags are `native`, `other-ipam`, `changed`, `noprev`, `emptyns`, `ownns`.
    #[must_use]
    pub fn steps(mut self, steps: &str) -> Self {
        steps.clone_into(&mut self.steps);
        self
    }

    /// Sets `CNI_ARGS` for all steps.
    #[must_use]
    pub fn args(self, args: &str) -> Self {
        self.env("CNI_ARGS", args)
    }

    /// Sets a variable for all steps.
    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.environment.push((key.to_owned(), Some(value.to_owned())));
        self
    }

    /// Removes a variable from all steps.
    #[must_use]
    pub fn unset(mut self, key: &str) -> Self {
        self.environment.push((key.to_owned(), None));
        self
    }

    /// Sets a shell script that runs on the node first.
    #[must_use]
    pub fn prepare(mut self, script: &str) -> Self {
        script.clone_into(&mut self.prepare);
        self
    }

    /// Sets a shell script that a step `BREAK` runs on the node.
    #[must_use]
    pub fn broken(mut self, script: &str) -> Self {
        script.clone_into(&mut self.broken);
        self
    }

    /// Sets the merge patch for steps with the flag `changed`.
    #[must_use]
    pub fn changed(mut self, patch: Value) -> Self {
        self.changed = Some(patch);
        self
    }

    /// Switches duplicate address detection off in containers, for cases that don't test it. The detection takes 2 s
    /// per call.
    #[must_use]
    pub fn fast(mut self) -> Self {
        self.fast = true;
        self
    }

    /// Runs the case on a fresh node. Returns a tree with exit status, stdout and the node's state for each step.
    ///
    /// # Errors
    /// The test itself fails. A plugin's failure is in the tree.
    pub fn run(&self, side: Side, native: &Path, ours: &Path) -> Result<Value> {
        let steps: Vec<Step> = self.steps.split_whitespace().map(Step::parse).collect::<Result<_>>()?;
        let containers: BTreeSet<_> = steps.iter().map(|step| step.container.as_str()).collect();
        let containers: Vec<_> = containers.into_iter().collect();
        let node = Node::new()?;
        for container in &containers {
            node.add_container(container)?;
            if self.fast {
                node.sh_in(container, "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad")?;
            }
        }
        if !self.prepare.is_empty() {
            node.sh(&self.prepare).context("preparation")?;
        }
        let mut names = Names::new(&format!("{}{:?}{}", self.config, self.environment, self.prepare));
        names.fixed(&native.to_string_lossy(), "(bin)");
        names.fixed(&ours.to_string_lossy(), "(bin)");
        node.snapshot(&containers, &mut names)?;

        let mut previous: BTreeMap<(String, String), Value> = BTreeMap::new();
        let mut tree = Map::new();
        for (number, step) in steps.iter().enumerate() {
            let key = format!("{} {}:{}/{}", number + 1, step.verb, step.container, step.interface);
            if step.verb == "KILL" {
                node.remove_container(&step.container)?;
                continue;
            }
            if step.verb == "BREAK" {
                node.sh(&self.broken).context("script of BREAK")?;
                continue;
            }
            let attachment = (step.container.clone(), step.interface.clone());
            let answer = node.call(&self.call(step, side, (native, ours), previous.get(&attachment), &node)?)?;
            if step.verb == "ADD" && answer.status == 0 {
                previous.insert(attachment, answer.success()?);
            }
            // A native plugin's panic prints a trace on stderr and leaves stdout empty. No test compares stderr.
            let mut outcome = node.snapshot(&containers, &mut names)?;
            let stdout = names.apply(&answer.stdout);
            let parsed: Vec<Value> = serde_json::Deserializer::from_str(&stdout)
                .into_iter()
                .collect::<Result<_, _>>()
                .unwrap_or_else(|_| vec![json!(stdout)]);
            if let Some(map) = outcome.as_object_mut() {
                map.insert("exit".to_owned(), json!(answer.status));
                map.insert(
                    "stdout".to_owned(),
                    if let [one] = parsed.as_slice() { one.clone() } else { json!(parsed) },
                );
                map.insert("text".to_owned(), json!(stdout));
            }
            tree.insert(key, outcome);
        }
        Ok(Value::Object(tree))
    }

    /// Returns the configurations with which an ADD of our plugin succeeded in the run of this tree.
    ///
    /// # Errors
    /// A step can't be read.
    pub fn added(&self, tree: &Value) -> Result<BTreeSet<String>> {
        let mut added = BTreeSet::new();
        for (number, step) in self.steps.split_whitespace().map(Step::parse).enumerate() {
            let step = step?;
            let key = format!("{} {}:{}/{}", number + 1, step.verb, step.container, step.interface);
            let exit = tree.get(&key).and_then(|outcome| outcome.get("exit"));
            if step.verb != "ADD" || step.flags.contains(&Flag::Native) || exit != Some(&json!(0)) {
                continue;
            }
            let parsed = serde_json::from_str::<Value>(&self.config);
            match (parsed, step.flags.contains(&Flag::Changed), &self.changed) {
                (Ok(mut config), true, Some(changed)) => {
                    merge(&mut config, changed);
                    added.insert(config.to_string());
                }
                _ => drop(added.insert(self.config.clone())),
            }
        }
        Ok(added)
    }

    /// Returns the plugin that is called.
    pub fn plugin(&self) -> &str {
        &self.plugin
    }

    /// Returns the number of calls of a run.
    pub fn calls(&self) -> usize {
        self.steps.split_whitespace().filter(|step| !step.starts_with("KILL") && *step != "BREAK").count()
    }

    fn call(
        &self,
        step: &Step,
        side: Side,
        (native, ours): (&Path, &Path),
        previous: Option<&Value>,
        node: &Node,
    ) -> Result<Call> {
        let has = |flag| step.flags.contains(&flag);
        let by_native = side == Side::Native || has(Flag::Native);
        let (bin, other) = if by_native { (native, ours) } else { (ours, native) };
        let mut config = self.config.clone();
        if let Ok(Value::Object(map)) = serde_json::from_str::<Value>(&config) {
            let mut value = Value::Object(map);
            if has(Flag::Changed) {
                merge(&mut value, self.changed.as_ref().context("no changed configuration")?);
            }
            let version = value.get("cniVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
            // As in libcni, DEL gets a `prevResult` from CNI 0.4.0 on.
            let wanted = step.verb == "CHECK" || (step.verb == "DEL" && version.as_str() >= "0.4.0");
            if let (true, false, Some(previous), Some(map)) =
                (wanted, has(Flag::NoPrevious), previous, value.as_object_mut())
            {
                map.insert("prevResult".to_owned(), previous.clone());
                config = value.to_string();
            } else if has(Flag::Changed) {
                config = value.to_string();
            }
        }
        let netns = match () {
            () if has(Flag::EmptyNetns) => String::new(),
            () if has(Flag::OwnNetns) => "/proc/self/ns/net".to_owned(),
            () => node.netns(&step.container),
        };
        let mut call = Call::new(bin, &self.plugin, &step.verb, config);
        if !matches!(step.verb.as_str(), "VERSION" | "STATUS" | "GC") {
            call = call.attachment(&step.container, &netns, &step.interface);
        }
        if has(Flag::OtherIpam) && side == Side::Ours {
            call = call.env("CNI_PATH", &other.to_string_lossy());
        }
        for (key, value) in &self.environment {
            call = match value {
                Some(value) => call.env(key, value),
                None => call.without(key),
            };
        }
        Ok(call)
    }
}

impl Step {
    fn parse(text: &str) -> Result<Self> {
        let (call, flags) = text.split_once('@').unwrap_or((text, ""));
        let (verb, attachment) = call.split_once(':').unwrap_or((call, "c1"));
        let (container, interface) = attachment.split_once('/').unwrap_or((attachment, "eth0"));
        let mut parsed = Vec::new();
        for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
            parsed.push(match flag {
                "native" => Flag::Native,
                "other-ipam" => Flag::OtherIpam,
                "changed" => Flag::Changed,
                "noprev" => Flag::NoPrevious,
                "emptyns" => Flag::EmptyNetns,
                "ownns" => Flag::OwnNetns,
                _ => bail!("unknown flag {flag} in step {text}"),
            });
        }
        ensure!(!verb.is_empty() && !container.is_empty() && !interface.is_empty(), "bad step {text}");
        Ok(Self {
            verb: verb.to_owned(),
            container: container.to_owned(),
            interface: interface.to_owned(),
            flags: parsed,
        })
    }
}

/// Applies a JSON merge patch (RFC 7386): objects merge, `null` removes, anything else replaces.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    if let Some(target) = target.as_object_mut() {
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_parse() {
        let step = Step::parse("DEL:c2/net1@native,noprev").unwrap();
        assert_eq!((step.verb.as_str(), step.container.as_str(), step.interface.as_str()), ("DEL", "c2", "net1"));
        assert_eq!(step.flags, [Flag::Native, Flag::NoPrevious]);
        assert!(Step::parse("ADD@what").is_err());
    }

    #[test]
    fn patches_merge() {
        let mut value = json!({"a": {"b": 1, "c": 2}, "d": 3});
        merge(&mut value, &json!({"a": {"b": null, "e": {"f": 4}}, "d": [5]}));
        assert_eq!(value, json!({"a": {"c": 2, "e": {"f": 4}}, "d": [5]}));
    }
}
