//! The faults of a file, with their places.

use super::text::Positions;
use crate::output::{self, one_line};
use postern_keys::Plugin;
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// The most warnings of a file that are shown. A network that a person writes has fewer.
const MOST_WARNINGS: usize = 1000;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A plugin or the runtime refuses the configuration.
    Error,
    /// The configuration works, but probably not as intended.
    Warning,
}

/// One finding, in the form for scripts. Keys are only ever added.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// A short name of the kind of fault. Later versions keep the name.
    pub code: &'static str,
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The place as keys and indexes; empty for the whole file.
    pub path: String,
    pub message: String,
    /// The remedy; empty if the message has it.
    pub help: String,
}

/// A file, and the findings in it.
pub struct Sheet<'t> {
    pub file: String,
    pub text: &'t str,
    pub findings: Vec<Finding>,
    /// The checks that were left out.
    pub notes: Vec<String>,
    positions: Positions<'t>,
    /// Places and words of the findings.
    seen: HashSet<(&'static str, usize, String)>,
    warnings: usize,
    /// Plugins of this Postern that the runtime finds under another name. The key is this other name.
    other_names: HashMap<String, String>,
}

impl<'t> Sheet<'t> {
    pub fn new(file: &str, text: &'t str) -> Self {
        Self {
            file: file.to_owned(),
            text,
            findings: Vec::new(),
            notes: Vec::new(),
            positions: Positions::new(text),
            seen: HashSet::new(),
            warnings: 0,
            other_names: HashMap::new(),
        }
    }

    /// True if there are more warnings than the limit. A note reports this.
    pub fn is_full(&self) -> bool {
        self.warnings > MOST_WARNINGS
    }

    /// Notes that a name leads to a plugin of this Postern with another name.
    pub fn other_name(&mut self, name: &str, plugin: String) {
        self.other_names.insert(name.to_owned(), plugin);
    }

    /// Returns the name of the plugin that a runtime starts for `name`. The names differ if the file `name` is a
    /// symbolic link to a plugin's file.
    pub fn named<'n>(&'n self, name: &'n str) -> &'n str {
        self.other_names.get(name).map_or(name, String::as_str)
    }

    /// Returns the table of the plugin that a runtime starts by this name.
    pub fn table(&self, name: &str) -> Option<&'static Plugin> {
        postern_keys::plugin(self.named(name))
    }

    /// Adds an error.
    pub fn error(
        &mut self,
        code: &'static str,
        at: usize,
        path: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(Severity::Error, code, at, path, message.into(), help.into());
    }

    /// Adds a warning.
    pub fn warning(
        &mut self,
        code: &'static str,
        at: usize,
        path: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(Severity::Warning, code, at, path, message.into(), help.into());
    }

    /// Adds a finding.
    pub fn add(
        &mut self,
        severity: Severity,
        code: &'static str,
        at: usize,
        path: &str,
        message: String,
        help: String,
    ) {
        if !self.seen.insert((code, at, message.clone())) {
            return;
        }
        if severity == Severity::Warning {
            self.warnings += 1;
            if self.warnings > MOST_WARNINGS {
                self.note(format!("there are more warnings: only the first {MOST_WARNINGS} are shown"));
                return;
            }
        }
        let (line, column) = self.positions.of(at);
        let file = self.file.clone();
        self.findings.push(Finding { severity, code, file, line, column, path: path.to_owned(), message, help });
    }

    /// Adds a note, once.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// True if there is an error at this place or below it.
    pub fn has_errors_below(&self, path: &str) -> bool {
        self.findings.iter().any(|one| one.severity == Severity::Error && one.path.starts_with(path))
    }
}

/// Returns the place of a key in an object.
pub fn below(path: &str, key: &str) -> String {
    let is_plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/'));
    match (path.is_empty(), is_plain) {
        (true, true) => key.to_owned(),
        (false, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}[{}]", postern_cni::quote(key)),
    }
}

/// Returns the place of an item in a list.
pub fn item(path: &str, at: usize) -> String {
    format!("{path}[{at}]")
}

/// Returns findings for people, in the form of compiler messages.
pub fn text(findings: &[Finding]) -> String {
    let mut lines = Vec::new();
    for one in findings {
        let severity = match one.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let place = output::whole(&format!("{}:{}:{}:", one.file, one.line, one.column));
        let whose = if one.path.is_empty() { String::new() } else { format!("{}: ", one_line(&one.path)) };
        lines.push(format!("{place} {severity}: {whose}{} [{}]", one_line(&one.message), one.code));
        if !one.help.is_empty() {
            lines.push(format!("  help: {}", one_line(&one.help)));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        assert_eq!(below(&item(&below("", "plugins"), 0), "ipam"), "plugins[0].ipam");
        assert_eq!(below("a", "b c"), "a[\"b c\"]");
        assert_eq!(below("", ""), "[\"\"]");
    }

    #[test]
    fn one_finding_of_a_place_is_enough() {
        let mut sheet = Sheet::new("f", "{}");
        sheet.error("json", 0, "", "m", "h");
        sheet.error("json", 0, "", "m", "h");
        sheet.warning("json", 1, "", "m", "");
        assert_eq!(text(&sheet.findings), "f:1:1: error: m [json]\n  help: h\nf:1:2: warning: m [json]");
    }
}
