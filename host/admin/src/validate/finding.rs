//! What is wrong in a file, and where.

use super::text::position;
use crate::output::{self, one_line};
use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A plugin refuses it, or the runtime does.
    Error,
    /// It works, and probably not as it was meant.
    Warning,
}

/// One finding, in the form for scripts. Keys are only ever added.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// A short name of its kind, which stays.
    pub code: &'static str,
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// The place as keys and indexes; empty for the whole file.
    pub path: String,
    pub message: String,
    /// The way out; empty if the message says it.
    pub help: String,
}

/// A file, and the findings in it.
pub struct Sheet<'t> {
    pub file: String,
    pub text: &'t str,
    pub findings: Vec<Finding>,
    /// What was not looked at.
    pub notes: Vec<String>,
}

impl<'t> Sheet<'t> {
    pub fn new(file: &str, text: &'t str) -> Self {
        Self { file: file.to_owned(), text, findings: Vec::new(), notes: Vec::new() }
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
        let (line, column) = position(self.text, at);
        let finding =
            Finding { severity, code, file: self.file.clone(), line, column, path: path.to_owned(), message, help };
        let is_same = |one: &Finding| {
            one.code == code && one.message == finding.message && (one.line, one.column) == (line, column)
        };
        if !self.findings.iter().any(is_same) {
            self.findings.push(finding);
        }
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

/// Returns findings for people, as compilers print theirs.
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
