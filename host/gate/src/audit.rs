//! One JSON line per operation: who asked for what, which rule decided, and how it ended.

use crate::effect::Effect;
use nix::libc::O_NOFOLLOW;
use postern_types::{ErrorCode, OpError, Operation, Reply};
use serde::Serialize;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Name of the log in the state directory; the one before it ends in `.1`.
pub const LOG: &str = "audit.jsonl";

/// Characters of a request or a result in a line: more is a guest that floods.
const SHOWN: usize = 2048;

/// Bytes that gather before they are written.
const GATHERED: usize = 64 << 10;

/// A log that has grown beyond this is set aside, so that the two together are bounded.
const LIMIT: u64 = 8 << 20;

/// The log of one process. Lines are gathered and written together, at the latest when the run ends.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    attachment: String,
    lines: Vec<u8>,
}

#[derive(Serialize)]
struct Line<'a, R: Serialize> {
    /// Milliseconds since 1970.
    time: u128,
    attachment: &'a str,
    verb: &'a str,
    plugin: &'a str,
    operation: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<&'a R>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cut: Option<String>,
    decision: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    result: String,
    /// Microseconds that the operation took.
    micros: u128,
}

impl Audit {
    /// A log in the state directory for the attachment `network/container/ifname`.
    pub fn new(state: &Path, attachment: String) -> Self {
        Self { path: state.join(LOG), attachment, lines: Vec::new() }
    }

    /// Where the log is.
    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// Notes one operation.
    pub fn note(
        &mut self,
        verb: &str,
        plugin: &str,
        operation: &Operation,
        rule: Option<&str>,
        outcome: &Result<Reply, OpError>,
        took: Duration,
    ) {
        let text = serde_json::to_string(operation).unwrap_or_default();
        let whole = text.len() <= SHOWN;
        let denied = matches!(outcome, Err(error) if error.code == ErrorCode::Denied);
        let line = Line {
            time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis()),
            attachment: &self.attachment,
            verb,
            plugin,
            operation: operation.name(),
            request: whole.then_some(operation),
            cut: (!whole).then(|| shorten(&text)),
            decision: if denied { "deny" } else { "allow" },
            rule,
            result: match outcome {
                Ok(_) => "ok".to_owned(),
                Err(error) => shorten(&error.to_string()),
            },
            micros: took.as_micros(),
        };
        append(&mut self.lines, &line);
        if self.lines.len() > GATHERED {
            self.flush();
        }
    }

    /// Notes that the host removed something of its own accord: undo, DEL by the record, garbage collection. No policy
    /// is asked for that; the record is the rule.
    pub fn note_removal(&mut self, verb: &str, effect: &Effect, outcome: &Result<(), OpError>, took: Duration) {
        let line = Line {
            time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis()),
            attachment: &self.attachment,
            verb,
            plugin: "postern",
            operation: "record.remove",
            request: Some(effect),
            cut: None,
            decision: "allow",
            rule: Some("record"),
            result: outcome.as_ref().map_or_else(|error| shorten(&error.to_string()), |()| "ok".to_owned()),
            micros: took.as_micros(),
        };
        append(&mut self.lines, &line);
    }

    /// Writes what has gathered. A log that can't be written is said on standard error, never on standard output.
    pub fn flush(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        let lines = std::mem::take(&mut self.lines);
        if let Err(e) = self.append(&lines) {
            eprintln!("postern: the audit log {} cannot be written: {e}", self.path.display());
        }
    }

    fn append(&self, lines: &[u8]) -> std::io::Result<()> {
        let open =
            || OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(O_NOFOLLOW).open(&self.path);
        let mut file: File = match open() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                if let Some(parent) = self.path.parent() {
                    DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
                }
                open()?
            }
            other => other?,
        };
        if file.metadata()?.len() > LIMIT {
            std::fs::rename(&self.path, self.path.with_extension("jsonl.1"))?;
            file = open()?;
        }
        file.write_all(lines)
    }
}

fn append<R: Serialize>(lines: &mut Vec<u8>, line: &Line<'_, R>) {
    if serde_json::to_writer(&mut *lines, line).is_ok() {
        lines.push(b'\n');
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.flush();
    }
}
