//! One JSON line per operation: who asked for what, which rule decided, and how it ended.

use postern_types::{ErrorCode, OpError, Operation, Reply};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Name of the log in the state directory; the one before it ends in `.1`.
pub const LOG: &str = "audit.jsonl";

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
struct Line<'a> {
    /// Milliseconds since 1970.
    time: u128,
    attachment: &'a str,
    verb: &'a str,
    plugin: &'a str,
    operation: &'a str,
    request: &'a Operation,
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
        let denied = matches!(outcome, Err(error) if error.code == ErrorCode::Denied);
        let line = Line {
            time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis()),
            attachment: &self.attachment,
            verb,
            plugin,
            operation: operation.name(),
            request: operation,
            decision: if denied { "deny" } else { "allow" },
            rule,
            result: match outcome {
                Ok(_) => "ok".to_owned(),
                Err(error) => error.to_string(),
            },
            micros: took.as_micros(),
        };
        if serde_json::to_writer(&mut self.lines, &line).is_ok() {
            self.lines.push(b'\n');
        }
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
        let open = || OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path);
        let mut file: File = match open() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                if let Some(parent) = self.path.parent() {
                    std::fs::create_dir_all(parent)?;
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

impl Drop for Audit {
    fn drop(&mut self) {
        self.flush();
    }
}
