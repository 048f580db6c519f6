//! The list of intended differences. Each entry has a reason, and each entry must cover a real difference.

use crate::Mismatch;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One intended difference. In patterns, `*` stands for any text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// One or several patterns for the case's name.
    pub case: Patterns,
    /// One or several patterns for the leaf's path, which starts with the step.
    pub path: Patterns,
    /// The exit status of the step on both sides. `None` matches any status.
    pub exit: Option<i64>,
    /// The pattern of the native value (JSON text). `None` matches any value.
    pub native: Option<String>,
    /// The pattern of our value (JSON text). `None` matches any value.
    pub ours: Option<String>,
    /// The reason for the difference.
    pub reason: String,
    #[serde(skip)]
    used: AtomicUsize,
}

/// One pattern or several; one of them must match.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Patterns {
    /// One pattern.
    One(String),
    /// Several patterns.
    Any(Vec<String>),
}

impl Patterns {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::One(pattern) => std::slice::from_ref(pattern),
            Self::Any(patterns) => patterns,
        }
    }

    fn match_text(&self, text: &str) -> bool {
        self.as_slice().iter().any(|pattern| matches(pattern, text))
    }
}

impl Difference {
    /// True if `is_such` accepts all case patterns of this entry.
    pub fn is_only_for(&self, is_such: impl Fn(&str) -> bool) -> bool {
        self.case.as_slice().iter().all(|pattern| is_such(pattern))
    }
}

impl fmt::Display for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_slice().join(", "))
    }
}

/// All intended differences.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Differences {
    #[serde(default)]
    difference: Vec<Difference>,
}

impl Differences {
    /// Reads the list.
    ///
    /// # Errors
    /// The file can't be read, or an entry has no reason.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let list: Self = toml::from_str(&text).with_context(|| path.display().to_string())?;
        for entry in &list.difference {
            ensure!(!entry.reason.trim().is_empty(), "{}: {} {} has no reason", path.display(), entry.case, entry.path);
        }
        Ok(list)
    }

    /// Returns an empty list.
    pub fn none() -> Self {
        Self { difference: Vec::new() }
    }

    /// Returns true if an entry covers this mismatch, and counts the use of the entry. `exit` is the exit status of the
    /// step, if both sides have the same status.
    pub fn intended(&self, case: &str, mismatch: &Mismatch, exit: Option<i64>) -> bool {
        let value = |pattern: &Option<String>, value: &Option<String>| {
            pattern.as_deref().is_none_or(|pattern| matches(pattern, value.as_deref().unwrap_or("(absent)")))
        };
        let covers = |entry: &&Difference| {
            entry.case.match_text(case)
                && entry.path.match_text(&mismatch.path)
                && (entry.exit.is_none() || entry.exit == exit)
                && value(&entry.native, &mismatch.native)
                && value(&entry.ours, &mismatch.ours)
        };
        // Every entry that covers the mismatch counts as used, because entries have no order.
        let mut intended = false;
        for entry in self.difference.iter().filter(covers) {
            entry.used.fetch_add(1, Ordering::Relaxed);
            intended = true;
        }
        intended
    }

    /// Returns the entries that covered nothing.
    pub fn unused(&self) -> impl Iterator<Item = &Difference> {
        self.difference.iter().filter(|entry| entry.used.load(Ordering::Relaxed) == 0)
    }
}

/// True if the pattern matches the whole text.
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<_> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) =
            rest.split_once(part).filter(|_| !part.is_empty()).or_else(|| part.is_empty().then_some(("", rest)))
        else {
            return false;
        };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*c", "abc", true),
            ("a*c", "abd", false),
            ("*b*", "abc", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxyyc", false),
            ("ab*ba", "aba", false),
            ("**", "x", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn an_entry_without_use_shows() {
        let list: Differences = toml::from_str(
            "[[difference]]\ncase = ['ptp/*', 'bridge/*']\npath = '*/mtu'\nours = '1'\nexit = 0\nreason = 'test'\n",
        )
        .unwrap();
        let mismatch = |ours: &str| Mismatch { path: "1/mtu".to_owned(), native: None, ours: Some(ours.to_owned()) };
        assert!(!list.intended("bridge/x", &mismatch("2"), Some(0)));
        assert!(!list.intended("bridge/x", &mismatch("1"), Some(1)));
        assert!(!list.intended("bridge/x", &mismatch("1"), None));
        assert_eq!(list.unused().count(), 1);
        assert!(list.intended("bridge/x", &mismatch("1"), Some(0)));
        assert_eq!(list.unused().count(), 0);
    }
}
