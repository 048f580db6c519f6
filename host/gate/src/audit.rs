//! One JSON line per operation: the plugin, the request, the rule of the policy that decided, and the outcome.
//!
//! Lines of operations that only read are collected. After an operation that changes something, its line is written at
//! once, together with the collected lines. So the log has all changes of a run even if the run is killed.
//!
//! A log that can't be written does not stop a run. Otherwise a full disk would leave containers without a network.
//! Standard error reports the failure once, with the number of lost lines.

mod file;
mod refusal;

pub use refusal::RunRefusal;

use crate::clock::now;
use file::{LIMIT, LogFile};
use postern_cni::{Verb, terminal};
use postern_types::{ErrorCode, Lasting, OpError, Operation, Reply};
use serde::Serialize;
use serde_json::json;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

/// The name of the log in [`crate::places::Places::logs`]. The previous log's name ends in `.1`.
pub const LOG: &str = "audit.jsonl";

/// The greatest size of a request or a result in a line, in bytes. Only a guest that floods the log reaches this size.
const SHOWN: usize = 512;

/// The greatest size of the lines without a change in one run, in bytes. Changes are always written. Without this
/// limit, endless refusals of one run would push all earlier runs out of the log.
const UNCHANGING: usize = 64 << 10;

/// The number of bytes that are collected before they are written.
const GATHERED: usize = 64 << 10;

/// The log of one process and attachment.
#[derive(Debug)]
pub struct Audit {
    file: LogFile,
    attachment: String,
    lines: Vec<u8>,
    /// The bytes of lines without a change.
    unchanging: usize,
    /// The number of lines without a change beyond [`UNCHANGING`], and the verb of the last such line.
    hidden: usize,
    hidden_verb: &'static str,
    /// The number of lost lines.
    lost: usize,
    /// The reason why the last attempt to write failed.
    failure: Option<String>,
}

/// An operation of a plugin, done or refused.
#[derive(Debug)]
pub struct AuditEntry<'a> {
    /// The verb of the run, or of the delegate.
    pub verb: Verb,
    /// The plugin that made the request.
    pub plugin: &'a str,
    /// SHA-256 of the plugin's component, hexadecimal.
    pub digest: &'a str,
    /// The operation with the objects that it names.
    pub operation: &'a Operation,
    /// The rule of the policy that allowed the operation; `None` for a refused operation.
    pub rule: Option<&'a str>,
    /// The policy file of the rule: `shipped` or `operator`.
    pub from: Option<&'static str>,
    /// The outcome.
    pub outcome: &'a Result<Reply, OpError>,
    /// The duration.
    pub took: Duration,
}

/// A line, with its keys in the order in which people read them.
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

impl<'a, R: Serialize> Line<'a, R> {
    /// Makes the line of the host's own act.
    fn of_host(attachment: &'a str, verb: &'a str, operation: &'a str, request: &'a R, took: Duration) -> Self {
        Self {
            time: now(),
            attachment,
            verb,
            plugin: "postern",
            digest: None,
            operation,
            request: Some(request),
            cut: None,
            decision: "allow",
            rule: None,
            from: None,
            result: String::new(),
            micros: took.as_micros(),
        }
    }
}

impl Audit {
    /// Makes a log in the directory `logs` for the attachment `network/container/ifname`.
    pub fn new(logs: &Path, attachment: String) -> Self {
        let file = LogFile::new(logs, LIMIT);
        Self { file, attachment, lines: Vec::new(), unchanging: 0, hidden: 0, hidden_verb: "", lost: 0, failure: None }
    }

    /// Makes a second log of this attachment, for code that has only a shared reference to the run.
    pub fn beside(&self) -> Self {
        Self::new(&self.file.directory, self.attachment.clone())
    }

    /// Notes one operation, and writes its line at once if the operation could change something. The lines of other
    /// operations are written up to the size [`UNCHANGING`]. Further lines are only counted.
    pub fn note(&mut self, entry: &AuditEntry<'_>) {
        // A refused operation has changed nothing.
        let changes = entry.rule.is_some() && entry.operation.lasting() != Lasting::Nothing;
        if !changes && self.unchanging >= UNCHANGING {
            self.hidden += 1;
            self.hidden_verb = entry.verb.as_str();
            return;
        }
        let before = self.lines.len();
        // An operation can be refused by policy, for a missing namespace, after the deadline, or beyond a limit.
        let is_done = entry.rule.is_some() && !matches!(entry.outcome, Err(error) if error.code == ErrorCode::Denied);
        let (verb, operation, request) = (entry.verb.as_str(), entry.operation.name(), entry.operation.logged());
        let mut line = Line {
            plugin: entry.plugin,
            digest: Some(entry.digest),
            decision: if is_done { "allow" } else { "deny" },
            rule: entry.rule,
            from: entry.from,
            result: result(entry.outcome),
            ..Line::of_host(&self.attachment, verb, operation, &request, entry.took)
        };
        let mut text = written(&line);
        // The request is measured only in long lines.
        if text.len() > SHOWN {
            let request = written(&request);
            if request.len() > SHOWN {
                (line.request, line.cut) = (None, Some(shorten(&request)));
                text = written(&line);
            }
        }
        append_text(&mut self.lines, &text);
        if !changes {
            self.unchanging += self.lines.len() - before;
        }
        if changes || self.lines.len() > GATHERED {
            self.flush();
        }
    }

    /// Notes an act of the host itself. `rule` is the reason why the act is allowed.
    pub fn note_own(
        &mut self,
        verb: &str,
        operation: &str,
        object: &impl Serialize,
        rule: &str,
        outcome: &Result<(), impl Display>,
        took: Duration,
    ) {
        let line = Line::of_host(&self.attachment, verb, operation, object, took);
        append(&mut self.lines, &Line { rule: Some(rule), result: result(outcome), ..line });
        self.flush();
    }

    /// Writes the collected lines. Lines that can't be written are kept for the next attempt, up to a limit.
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

/// Appends the line in ASCII, for people who read the file itself on a terminal.
fn append(lines: &mut Vec<u8>, line: &impl Serialize) {
    append_text(lines, &written(line));
}

/// Returns a line as JSON.
fn written(line: &impl Serialize) -> String {
    // All keys are texts, and writing to memory can't fail.
    serde_json::to_string(line).unwrap_or_default()
}

fn append_text(lines: &mut Vec<u8>, text: &str) {
    if text.is_empty() {
        return;
    }
    match text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        true => lines.extend_from_slice(text.as_bytes()),
        false => lines.extend_from_slice(terminal::json(text).as_bytes()),
    }
    lines.push(b'\n');
}

fn result<T>(outcome: &Result<T, impl Display>) -> String {
    outcome.as_ref().map_or_else(|error| shorten(&error.to_string()), |_| "ok".to_owned())
}

/// Returns the beginning of a text that takes at most [`SHOWN`] bytes in the log. Quotes and control characters take
/// more bytes in JSON.
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
    /// Makes the last attempt to write. A loss is reported on standard error, because standard output belongs to the
    /// runtime.
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
                "postern: {} lines of the audit log {} are lost, because they cannot be written: {}",
                self.lost,
                self.file.directory.join(LOG).display(),
                self.failure.as_deref().unwrap_or_default()
            );
        }
    }
}

#[cfg(test)]
mod tests;
