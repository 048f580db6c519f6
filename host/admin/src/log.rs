//! `postern log`: the audit log for people.

use crate::account::short;
use crate::output::one_line;
use anyhow::{Context, Result};
use postern_gate::LOG;
use postern_gate::places::Places;
use serde_json::Value;
use std::io::{ErrorKind, Write};

/// Columns of a terminal that is wide enough.
const WIDTH: usize = 120;

/// Where an operation's objects begin.
const INDENT: usize = 59;

/// Prints the log, oldest first: of one container if asked for, or what was refused. `json` prints lines as they are.
pub fn run(container: Option<&str>, denied: bool, json: bool) -> Result<()> {
    let newest = Places::find().map_err(anyhow::Error::msg)?.logs.join(LOG);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut last = String::new();
    for path in [newest.with_extension("jsonl.1"), newest] {
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(e).with_context(|| format!("{}", path.display())),
        };
        for line in String::from_utf8_lossy(&text).lines() {
            let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
            let entry = Entry(&entry);
            if !entry.is_wanted(container, denied) {
                continue;
            }
            let printed = if json {
                writeln!(out, "{line}")
            } else {
                let heading = one_line(&entry.heading());
                let new = heading != last;
                last.clone_from(&heading);
                let heading = if new { heading + "\n" } else { String::new() };
                writeln!(out, "{heading}{}", wrap(&one_line(&entry.sentence())))
            };
            match printed {
                // Whoever reads has seen enough.
                Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(()),
                other => other?,
            }
        }
    }
    match out.flush() {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
}

/// Breaks what is wider than a terminal, so that what follows stays below the objects and looks like no entry.
fn wrap(text: &str) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split_inclusive(' ') {
        let width = word.trim_end().chars().count();
        if column > INDENT && column + width > WIDTH {
            lines.truncate(lines.trim_end().len());
            lines.push('\n');
            lines.extend(std::iter::repeat_n(' ', INDENT));
            column = INDENT;
        }
        lines.push_str(word);
        column += word.chars().count();
    }
    lines.truncate(lines.trim_end().len());
    lines
}

/// A line of the log.
#[derive(Clone, Copy)]
struct Entry<'a>(&'a Value);

impl<'a> Entry<'a> {
    fn text(self, name: &str) -> &'a str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn number(self, name: &str) -> u64 {
        self.0.get(name).and_then(Value::as_u64).unwrap_or_default()
    }

    fn is_wanted(self, container: Option<&str>, denied: bool) -> bool {
        // `network/container/interface`
        let of = self.text("attachment").split('/').nth(1).unwrap_or_default();
        container.is_none_or(|container| container == of) && (!denied || self.text("decision") == "deny")
    }

    /// What entries have in common: the day, the attachment, the verb and the component.
    fn heading(self) -> String {
        let (day, _) = utc(self.number("time"));
        if self.text("note") == "rotated" {
            return format!("{day} UTC");
        }
        let short = short(self.text("digest"));
        let component = if short.is_empty() { String::new() } else { format!(" (sha256 {short})") };
        let plugin = self.text("plugin");
        format!("{day} UTC  {} {}  {plugin}{component}", self.text("verb"), self.text("attachment"))
    }

    /// One operation, or what the log has to say of itself.
    fn sentence(self) -> String {
        let (_, time) = utc(self.number("time"));
        match self.text("note") {
            "" => {}
            "rotated" => {
                let gone = self.number("dropped_bytes");
                return format!("  {time}  a new log begins; {gone} bytes of older lines are gone");
            }
            note => return format!("  {time}  {note}"),
        }
        let verdict = if self.text("decision") == "deny" { "DENIED" } else { "allowed" };
        let operation = self.text("operation");
        let mut words = format!("  {time}  {verdict:<7} {operation:<23} {:>6} us ", self.number("micros"));
        for (key, value) in self.0.get("request").and_then(Value::as_object).into_iter().flatten() {
            if key != "op" && says_something(value) {
                words.push_str(&format!(" {key}={}", brief(value)));
            }
        }
        if !self.text("cut").is_empty() {
            words.push_str(&format!(" {}", self.text("cut")));
        }
        match (self.text("rule"), self.text("from")) {
            ("", _) => {}
            (rule, "") => words.push_str(&format!(" [{rule}]")),
            (rule, from) => words.push_str(&format!(" [{rule}, {from}]")),
        }
        if self.text("result") != "ok" {
            words.push_str(&format!(" -> {}", self.text("result")));
        }
        words
    }
}

fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(values) => !values.is_empty(),
        _ => true,
    }
}

/// A value without what an object in it leaves as it is: `--json` has that.
fn brief(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| says_something(value) && **value != Value::Bool(false));
            Value::Object(kept.map(|(key, value)| (key.clone(), brief(value))).collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(brief).collect()),
        other => other.clone(),
    }
}

/// Day and time of day of so many milliseconds since 1970, in UTC.
pub fn utc(milliseconds: u64) -> (String, String) {
    let (seconds, thousandths) = (milliseconds / 1000, milliseconds % 1000);
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the day that a leap year has more is its last one.
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    (
        format!("{year:04}-{month:02}-{date:02}"),
        format!("{:02}:{:02}:{:02}.{thousandths:03}", second / 3600, second / 60 % 60, second % 60),
    )
}
