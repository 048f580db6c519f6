//! Differences between two JSON trees.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// One place with a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Keys from the root, joined by `/`.
    pub path: String,
    /// The native side's value, if it has a value here.
    pub native: Option<String>,
    /// Our side's value, if it has a value here.
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

/// Returns all differences, sorted by path: a leaf, or a whole branch that one side lacks.
pub fn compare(native: &Value, ours: &Value) -> Vec<Mismatch> {
    let mut found = Vec::new();
    branch(Some(native), Some(ours), String::new(), &mut found);
    found
}

fn branch(native: Option<&Value>, ours: Option<&Value>, path: String, found: &mut Vec<Mismatch>) {
    if native == ours {
        return;
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}/{key}") };
    match (native, ours) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            for key in left.keys().chain(right.keys()).collect::<BTreeSet<_>>() {
                branch(left.get(key), right.get(key), below(key), found);
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for index in 0..left.len().max(right.len()) {
                branch(left.get(index), right.get(index), below(&index.to_string()), found);
            }
        }
        _ => found.push(Mismatch { path, native: native.map(Value::to_string), ours: ours.map(Value::to_string) }),
    }
}

/// True if an object of the tree has this key, at any depth.
pub fn has_key(tree: &Value, key: &str) -> bool {
    match tree {
        Value::Object(map) => map.contains_key(key) || map.values().any(|value| has_key(value, key)),
        Value::Array(list) => list.iter().any(|value| has_key(value, key)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_found_at_any_depth() {
        let tree = json!({"links": [{"eth0": {"addresses": {"fd00::1/64": {"tentative": true}}}}]});
        assert!(has_key(&tree, "tentative") && has_key(&tree, "links"));
        assert!(!has_key(&tree, "scope") && !has_key(&json!("tentative"), "tentative"));
    }

    #[test]
    fn leaves_that_differ_are_named() {
        let found = compare(&json!({"a": {"b": [1, 2]}, "c": true}), &json!({"a": {"b": [1, 3, 4]}, "c": true}));
        let text: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["a/b/1\n    native: 2\n    ours:   3", "a/b/2\n    native: (absent)\n    ours:   4"]);
        assert!(compare(&json!({"x": []}), &json!({"x": []})).is_empty());
        assert_eq!(compare(&json!({"x": []}), &json!({"x": {}})).len(), 1);
        let branch = compare(&json!({}), &json!({"x": {"y": 1}}));
        assert_eq!(branch.first().unwrap().to_string(), "x\n    native: (absent)\n    ours:   {\"y\":1}");
    }
}
