//! Differences between two JSON trees, leaf by leaf.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One leaf that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Keys from the root, joined by `/`.
    pub path: String,
    /// The native side's value; `None` when it has none.
    pub native: Option<String>,
    /// Our value; `None` when we have none.
    pub ours: Option<String>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let absent = || "(absent)".to_owned();
        writeln!(formatter, "{}", self.path)?;
        writeln!(formatter, "    native: {}", self.native.clone().unwrap_or_else(absent))?;
        write!(formatter, "    ours:   {}", self.ours.clone().unwrap_or_else(absent))
    }
}

/// All leaves that differ, in order of their paths.
pub fn compare(native: &Value, ours: &Value) -> Vec<Mismatch> {
    let (native, ours) = (leaves(native), leaves(ours));
    let paths: BTreeSet<_> = native.keys().chain(ours.keys()).collect();
    let differing = paths.into_iter().filter(|path| native.get(*path) != ours.get(*path));
    differing.map(|path| Mismatch { path: path.clone(), native: native.get(path).cloned(), ours: ours.get(path).cloned() }).collect()
}

fn leaves(tree: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    collect(tree, String::new(), &mut all);
    all
}

fn collect(tree: &Value, path: String, all: &mut BTreeMap<String, String>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}/{key}") };
    match tree {
        Value::Object(map) if !map.is_empty() => map.iter().for_each(|(key, value)| collect(value, below(key), all)),
        Value::Array(list) if !list.is_empty() => {
            list.iter().enumerate().for_each(|(index, value)| collect(value, below(&index.to_string()), all));
        }
        leaf => drop(all.insert(path, leaf.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn leaves_that_differ_are_named() {
        let found = compare(&json!({"a": {"b": [1, 2]}, "c": true}), &json!({"a": {"b": [1, 3, 4]}, "c": true}));
        let text: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["a/b/1\n    native: 2\n    ours:   3", "a/b/2\n    native: (absent)\n    ours:   4"]);
        assert!(compare(&json!({"x": []}), &json!({"x": []})).is_empty());
        assert_eq!(compare(&json!({"x": []}), &json!({"x": {}})).len(), 1);
    }
}
