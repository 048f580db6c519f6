//! One JSON line per operation: who asked for what, which rule decided, and how it ended.
//!
//! Lines of operations that only read gather; one that changes something is written as soon as it is done, and with it
//! what has gathered. So what a run did to the node is in the log even if the run is killed. A log that can't be written
//! doesn't stop a run: that would leave containers without a network because a disk is full. It is said on standard error
//! instead, once, with the number of lines that are lost.

mod file;
mod refusal;

pub use refusal::Refusal;

pub use file::openable;

use crate::clock::now;
use file::{LIMIT, LogFile};
use postern_cni::{Verb, terminal};
use postern_types::{ErrorCode, Lasting, OpError, Operation, Reply};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

/// Name of the log in [`crate::places::Places::logs`]; the one before it ends in `.1`.
pub const LOG: &str = "audit.jsonl";

/// Bytes of a request or a result in a line: more is a guest that floods.
const SHOWN: usize = 512;

/// Bytes of lines in one run that say that nothing changed. What was changed is always written, and a run whose refusals
/// had no end would otherwise wash all runs before it out of the log.
const UNCHANGING: usize = 64 << 10;

/// Bytes that gather before they are written.
const GATHERED: usize = 64 << 10;

/// The log of one process and attachment.
#[derive(Debug)]
pub struct Audit {
    file: LogFile,
    attachment: String,
    lines: Vec<u8>,
    /// Bytes of lines that said that nothing changed.
    unchanging: usize,
    /// Such lines beyond [`UNCHANGING`], and the verb of the last.
    hidden: usize,
    hidden_verb: &'static str,
    /// Lines that were given up.
    lost: usize,
    /// Why the last attempt to write failed.
    failure: Option<String>,
}

/// An operation of a plugin, done or refused.
#[derive(Debug)]
pub struct Entry<'a> {
    /// Of the run, or of the delegate's.
    pub verb: Verb,
    /// Who asked.
    pub plugin: &'a str,
    /// SHA-256 of its component, hexadecimal.
    pub digest: &'a str,
    /// What for, with the objects that it names.
    pub operation: &'a Operation,
    /// The rule that allowed it; `None` if it was not let through.
    pub rule: Option<&'a str>,
    /// Which policy file the rule came from: `shipped` or `operator`.
    pub from: Option<&'static str>,
    /// How it ended.
    pub outcome: &'a Result<Reply, OpError>,
    /// How long it took.
    pub took: Duration,
}

/// A line, in the order in which people read it.
#[derive(Serialize)]
struct Line<'a, R: Serialize> {
    /// Milliseconds since 1970.
    time: u64,
    attachment: &'a str,
    verb: &'a str,
    plugin: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<&'a str>,
    operation: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<&'a R>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cut: Option<String>,
    decision: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    result: String,
    /// Microseconds that the operation took.
    micros: u128,
}

impl Audit {
    /// A log in the directory `logs` for the attachment `network/container/ifname`.
    pub fn new(logs: &Path, attachment: String) -> Self {
        let file = LogFile::new(logs, LIMIT);
        Self { file, attachment, lines: Vec::new(), unchanging: 0, hidden: 0, hidden_verb: "", lost: 0, failure: None }
    }

    /// Notes one operation, and writes it at once if it could change something. Of those that could not, only as many as
    /// fit [`UNCHANGING`]; the others are counted.
    pub fn note(&mut self, entry: &Entry<'_>) {
        // What was not let through has changed nothing.
        let changes = entry.rule.is_some() && entry.operation.lasting() != Lasting::Nothing;
        if !changes && self.unchanging >= UNCHANGING {
            self.hidden += 1;
            self.hidden_verb = entry.verb.as_str();
            return;
        }
        let before = self.lines.len();
        let text = serde_json::to_string(entry.operation).unwrap_or_default();
        let whole = text.len() <= SHOWN;
        let denied = matches!(entry.outcome, Err(error) if error.code == ErrorCode::Denied);
        let line = Line {
            time: now(),
            attachment: &self.attachment,
            verb: entry.verb.as_str(),
            plugin: entry.plugin,
            digest: Some(entry.digest),
            operation: entry.operation.name(),
            request: whole.then_some(entry.operation),
            cut: (!whole).then(|| shorten(&text)),
            decision: if denied { "deny" } else { "allow" },
            rule: entry.rule,
            from: entry.from,
            result: result(entry.outcome),
            micros: entry.took.as_micros(),
        };
        append(&mut self.lines, &line);
        if !changes {
            self.unchanging += self.lines.len() - before;
        }
        if changes || self.lines.len() > GATHERED {
            self.flush();
        }
    }

    /// Notes that the host removed something of its own accord: undo, DEL by the record, garbage collection. No policy
    /// is asked for that; the record is the rule.
    pub fn note_removal(&mut self, verb: &str, effect: &impl Serialize, outcome: &Result<(), OpError>, took: Duration) {
        self.note_own(verb, "record.remove", effect, "record", outcome, took);
    }

    /// Notes that the host removed what has an attachment's names, on its DEL, where there is neither a record nor a plugin to
    /// ask. That it is the attachment's own is the rule.
    pub fn note_own_removal(&mut self, object: &impl Serialize, outcome: &Result<(), OpError>, took: Duration) {
        self.note_own("DEL", "own.remove", object, "own", outcome, took);
    }

    /// Notes what the host did of its own accord: `rule` is why it could.
    pub fn note_own(
        &mut self,
        verb: &str,
        operation: &str,
        object: &impl Serialize,
        rule: &str,
        outcome: &Result<(), impl Display>,
        took: Duration,
    ) {
        let line = Line {
            time: now(),
            attachment: &self.attachment,
            verb,
            plugin: "postern",
            digest: None,
            operation,
            request: Some(object),
            cut: None,
            decision: "allow",
            rule: Some(rule),
            from: None,
            result: result(outcome),
            micros: took.as_micros(),
        };
        append(&mut self.lines, &line);
        self.flush();
    }

    /// Writes what has gathered. What can't be written is kept for the next attempt, as long as it is not too much.
    pub fn flush(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        match self.file.append(&self.lines) {
            Ok(()) => self.lines.clear(),
            Err(e) => {
                self.failure = Some(e.to_string());
                if self.lines.len() > GATHERED {
                    self.give_up();
                }
            }
        }
    }

    fn give_up(&mut self) {
        self.lost += self.lines.iter().filter(|byte| **byte == b'\n').count();
        self.lines.clear();
    }
}

/// The line of a run that was refused before a guest ran. Whoever tampered with its code chose no digest.
fn line_of_refusal<'a>(refusal: &Refusal<'a>, request: &'a Value) -> Line<'a, Value> {
    Line {
        time: now(),
        attachment: refusal.attachment,
        verb: refusal.verb,
        plugin: refusal.plugin,
        digest: None,
        operation: refusal::OPERATION,
        request: Some(request),
        cut: None,
        decision: "deny",
        rule: None,
        from: None,
        result: shorten(refusal.reason),
        micros: refusal.took.as_micros(),
    }
}

/// In ASCII, for those who read the file itself on a terminal.
fn append(lines: &mut Vec<u8>, line: &impl Serialize) {
    let Ok(text) = serde_json::to_string(line) else { return };
    match text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        true => lines.extend(text.bytes()),
        false => lines.extend(terminal::json(&text).bytes()),
    }
    lines.push(b'\n');
}

fn result<T>(outcome: &Result<T, impl Display>) -> String {
    outcome.as_ref().map_or_else(|error| shorten(&error.to_string()), |_| "ok".to_owned())
}

/// As much of a text as takes [`SHOWN`] bytes in the log, where quotes and control characters take more than their own.
fn shorten(text: &str) -> String {
    let mut bytes = 0;
    for (at, c) in text.char_indices() {
        bytes += match c {
            '"' | '\\' => 2,
            ' '..='~' => 1,
            c => 6 * c.len_utf16(),
        };
        if bytes > SHOWN {
            return format!("{}…", text.get(..at).unwrap_or_default());
        }
    }
    text.to_owned()
}

impl Drop for Audit {
    /// The last attempt. What is lost is said here, on standard error: standard output belongs to the runtime.
    fn drop(&mut self) {
        if self.hidden > 0 {
            let note = format!("{} more operations that changed nothing are not shown", self.hidden);
            let line = json!({
                "time": now(), "attachment": self.attachment, "verb": self.hidden_verb, "plugin": "postern", "note": note,
            });
            append(&mut self.lines, &line);
        }
        self.flush();
        self.give_up();
        if self.lost > 0 {
            crate::say!(
                "postern: {} lines of the audit log {} are lost, for they cannot be written: {}",
                self.lost,
                self.file.path().display(),
                self.failure.as_deref().unwrap_or_default()
            );
        }
    }
}

#[cfg(test)]
mod tests;
