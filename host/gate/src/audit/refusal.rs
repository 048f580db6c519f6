//! The line of a run that was refused before a guest ran. The reason can be modified code, an unreadable policy, a
//! directory of another user, the wrong namespace, or failed confinement.
//!
//! A runtime may try again every second, each time for another container. These refusals must not push all other lines
//! out of the log. So a refusal with the same network, plugin, verb and reason is written once in ten minutes. At most
//! 64 refusals of any kind are written in an hour. Only refusals at the end of the log are counted. If the end has few
//! refusals, other lines fill it, so refusals push no lines out.

use super::{GATHERED, LOG, Line, LogFile, append, shorten};
use crate::clock::now;
use crate::places;
use nix::unistd::getuid;
use postern_state::OpenMode;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

/// The time in which one line stands for all equal refusals, in milliseconds.
const ONCE_IN: u64 = 600_000;

/// The most refusals within [`HOUR`].
const MOST: usize = 64;

/// One hour in milliseconds.
const HOUR: u64 = 3_600_000;

/// The operation in the line of a refusal.
const OPERATION: &str = "plugin.start";

/// A run that was refused.
#[derive(Debug)]
pub struct RunRefusal<'a> {
    /// The verb that the runtime called.
    pub verb: &'a str,
    /// The plugin that the runtime called.
    pub plugin: &'a str,
    /// `network/container/ifname`: the parts that the request names.
    pub attachment: &'a str,
    /// The reason that the runtime gets.
    pub reason: &'a str,
    /// The duration of the run until the refusal. For VERSION the duration is almost zero, because it is measured from
    /// the refusal.
    pub took: Duration,
}

impl RunRefusal<'_> {
    /// Writes the line, unless an equal line was written recently. Without a trusted log, standard error reports the
    /// missing line. The runtime gets the reason in any case.
    pub fn note(&self) {
        let written = places::logs().map_err(std::io::Error::other).and_then(|logs| self.write(&logs, super::LIMIT));
        if let Err(reason) = written {
            crate::say!("postern: the audit log has no line of this refusal: {reason}");
        }
    }

    pub(super) fn write(&self, logs: &Path, limit: u64) -> std::io::Result<()> {
        let earlier = earlier(logs);
        let since = |milliseconds: u64| move |line: &&Value| age(line) < milliseconds;
        if earlier.iter().filter(since(ONCE_IN)).any(|line| self.is_like(line)) {
            return Ok(());
        }
        let count = earlier.iter().filter(since(HOUR)).count();
        if count >= MOST {
            return Ok(());
        }
        let mut lines = Vec::new();
        let request = json!({"op": "plugin-start", "user": getuid().as_raw()});
        // The line has no digest, because modified code could choose the digest.
        let line = Line::of_host(self.attachment, self.verb, OPERATION, &request, self.took);
        append(&mut lines, &Line { plugin: self.plugin, decision: "deny", result: shorten(self.reason), ..line });
        if count + 1 == MOST {
            let note = "so many runs were refused in an hour that further refusals are not shown for a while";
            let line = json!({
                "time": now(), "attachment": self.attachment, "verb": self.verb, "plugin": "postern", "note": note,
            });
            append(&mut lines, &line);
        }
        LogFile::new(logs, limit).append(&lines)
    }

    fn is_like(&self, line: &Value) -> bool {
        let text = |key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default();
        let network = |attachment: &str| attachment.split('/').next().unwrap_or_default().to_owned();
        text("verb") == self.verb
            && text("plugin") == self.plugin
            && network(text("attachment")) == network(self.attachment)
            && text("result") == shorten(self.reason)
    }
}

fn age(line: &Value) -> u64 {
    now().saturating_sub(line.get("time").and_then(Value::as_u64).unwrap_or_default())
}

/// Returns the refusals at the end of the log. For an unreadable log it returns none, so that the new line is written:
/// a repeated line is better than a missing line.
fn earlier(logs: &Path) -> Vec<Value> {
    let Ok(directory) = places::directory(logs) else { return Vec::new() };
    let Ok(mut file) = directory.file(LOG, OpenMode::Read) else { return Vec::new() };
    let text = tail(&mut file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line.get("operation").and_then(Value::as_str) == Some(OPERATION)).collect()
}

fn tail(file: &mut File) -> std::io::Result<String> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(GATHERED as u64)))?;
    let mut bytes = Vec::new();
    file.take(GATHERED as u64).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
