//! `postern log`: the audit log for people.

mod reader;

use crate::account::short;
use crate::output::{self, one_line, wrap};
use anyhow::{Result, bail};
use postern_account::utc;
use postern_cni::terminal;
use postern_gate::LOG;
use postern_gate::places::{self, Places};
use reader::Reader;
use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A line that is too wide continues at this column, below the verdict.
const HANG: usize = 16;

/// The pause between two looks at a log that is followed.
const PAUSE: Duration = Duration::from_millis(200);

/// The options of `log`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Only this container: its ID, or the beginning of the ID.
    #[arg(long, value_name = "ID")]
    container: Option<String>,
    /// Only refused operations.
    #[arg(long)]
    denied: bool,
    /// Only lines since this time: an age (`10m`, `2h 30m`, `1day`), or a time in UTC (`2026-11-21 14:18:22`).
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<u64>,
    /// Only the last N lines that the other options select.
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<usize>,
    /// Print new lines as they are written, until the command is interrupted.
    #[arg(short, long)]
    follow: bool,
    /// Print the lines of the log unchanged, one JSON object each.
    #[arg(long)]
    json: bool,
}

/// Returns an age or a time as milliseconds since 1970.
fn since(text: &str) -> Result<u64, String> {
    let then = match (humantime::parse_duration(text), humantime::parse_rfc3339_weak(text)) {
        (Ok(age), _) => SystemTime::now().checked_sub(age).unwrap_or(UNIX_EPOCH),
        (_, Ok(then)) => then,
        _ => return Err("an age (10m, 2h 30m, 1day) or a time in UTC (2026-11-21 14:18:22) is needed".to_owned()),
    };
    let passed = then.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX))
}

/// Prints the log, oldest first.
///
/// # Errors
/// The log can't be read, or has no line of the requested container.
pub fn run(options: &Options) -> Result<()> {
    let places = Places::find().map_err(anyhow::Error::msg)?;
    if let Some(why) = places::why_logs_moved(&places.logs) {
        output::say(why);
    }
    let path = places.logs.join(LOG);
    let mut reader = Reader::new(path);
    let lines = reader.all()?;
    let container = match &options.container {
        Some(asked) => Some(meant(&lines, asked, options.follow)?),
        None => None,
    };
    let mut wanted: VecDeque<(String, Value)> = VecDeque::new();
    let most = options.lines.unwrap_or(usize::MAX);
    for (line, value) in parsed(lines) {
        if Entry(&value).is_wanted(container.as_deref(), options) {
            wanted.push_back((line, value));
            if wanted.len() > most {
                wanted.pop_front();
            }
        }
    }
    let mut printer = Printer { out: BufWriter::new(io::stdout().lock()), heading: String::new(), json: options.json };
    let mut ended = printer.print(wanted);
    while options.follow && ended.is_ok() {
        std::thread::sleep(PAUSE);
        let new = parsed(reader.new_lines()?);
        ended = printer.print(new.filter(|(_, value)| Entry(value).is_wanted(container.as_deref(), options)));
    }
    match ended {
        // The program that reads the output has closed the pipe.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn parsed(lines: Vec<String>) -> impl Iterator<Item = (String, Value)> {
    lines.into_iter().filter_map(|line| serde_json::from_str(&line).ok().map(|value| (line, value)))
}

/// Returns the container ID that equals or begins with `asked`. With `may_come`, the log may have no line of the
/// container yet.
fn meant(lines: &[String], asked: &str, may_come: bool) -> Result<String> {
    let values = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ids: BTreeSet<String> = values.map(|value| Entry(&value).container().to_owned()).collect();
    if ids.contains(asked) {
        return Ok(asked.to_owned());
    }
    let fitting: Vec<&str> = ids.iter().map(String::as_str).filter(|id| id.starts_with(asked)).collect();
    match fitting.as_slice() {
        [one] if !asked.is_empty() => Ok((*one).to_owned()),
        [] if may_come => Ok(asked.to_owned()),
        [] => bail!("the log has no line of container \"{asked}\"; `postern log` without --container shows all lines"),
        many => bail!("\"{asked}\" is the beginning of {} containers: {}", many.len(), many.join(", ")),
    }
}

/// The last printed heading, and the output.
struct Printer<W: Write> {
    out: W,
    heading: String,
    json: bool,
}

impl<W: Write> Printer<W> {
    fn print(&mut self, lines: impl IntoIterator<Item = (String, Value)>) -> io::Result<()> {
        for (line, value) in lines {
            if self.json {
                writeln!(self.out, "{}", terminal::json(&line))?;
                continue;
            }
            let entry = Entry(&value);
            let heading = one_line(&entry.heading());
            if heading != self.heading {
                writeln!(self.out, "{}", wrap(&heading, HANG))?;
                self.heading = heading;
            }
            writeln!(self.out, "{}", wrap(&one_line(&entry.sentence()), HANG))?;
        }
        self.out.flush()
    }
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

    /// Returns the container's ID: an attachment is `network/container/interface`.
    fn container(self) -> &'a str {
        self.text("attachment").split('/').nth(1).unwrap_or_default()
    }

    fn is_wanted(self, container: Option<&str>, options: &Options) -> bool {
        container.is_none_or(|container| container == self.container())
            && (!options.denied || self.text("decision") == "deny")
            && options.since.is_none_or(|since| self.number("time") >= since)
    }

    /// Returns the common part of entries: the day, the attachment, the verb and the component.
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

    /// Returns one operation, or a message of the log about itself.
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

/// Returns a value without the keys that have no effect. Only `--json` prints those keys.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_times() {
        assert_eq!(since("2026-11-21 13:00:00"), Ok(1_795_266_000_000));
        let now = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
        let ago = now - since("2h 30m").unwrap();
        assert!((8_999_000..9_001_000).contains(&ago), "{ago}");
        assert!(since("yesterday").is_err());
    }

    #[test]
    fn containers_by_the_beginning_of_their_ids() {
        let lines: Vec<String> = ["abc", "abd", "x"].map(|id| format!(r#"{{"attachment":"net/{id}/eth0"}}"#)).to_vec();
        assert_eq!(meant(&lines, "abc", false).unwrap(), "abc");
        assert_eq!(meant(&lines, "x", false).unwrap(), "x");
        assert!(meant(&lines, "ab", false).unwrap_err().to_string().contains("2 containers: abc, abd"));
        assert!(meant(&lines, "y", false).is_err() && meant(&lines, "", false).is_err());
        assert_eq!(meant(&lines, "y", true).unwrap(), "y");
    }
}
