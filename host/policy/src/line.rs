//! The policy line that would allow a refused operation. The parser reads each line before it is offered. A line that
//! is copied from a message into a file must have the meaning that the message says.

use super::capability;
use super::file::File;
use super::grammar::{self, Count, TableName};
use super::template::Template;
use super::view::Origin;
use crate::prelude::*;
use core::fmt::Write as _;
use postern_types::Capability;

/// A change of a table by a policy line.
#[derive(Clone, Debug)]
pub enum Change {
    /// A text that becomes the value of a key, or that is added to its list.
    Text(&'static str, String),
    /// A key that is removed from the table.
    Without(&'static str),
}

/// Returns the change that gives a key this text.
pub fn text(key: &'static str, text: impl Into<String>) -> Change {
    Change::Text(key, text.into())
}

/// Returns the change that adds an object to the table, if there is an object.
pub fn object(key: &'static str, object: &str) -> Vec<Change> {
    if object.is_empty() { Vec::new() } else { vec![text(key, object)] }
}

/// Returns a new `withdraw` for the operator's file that makes a capability available again. `None` if the operator's
/// file does not withdraw the capability, or if another file withdraws it too.
pub fn withdraw(file: &File, capability: Capability) -> Option<String> {
    let others = file.operator_withdraws.iter().filter(|of| **of != capability);
    let rest: Vec<&str> = others.map(|capability| capability.name()).collect();
    let elsewhere = file.withdraw.iter().filter(|of| **of == capability).count();
    let own = file.operator_withdraws.iter().filter(|of| **of == capability).count();
    (own > 0 && own == elsewhere).then(|| format!("withdraw = {}", list(&rest))).filter(|line| is_read(line))
}

/// Returns the line that doubles a limit; `None` if the limit is at its greatest value.
pub fn limit(key: &str, now: u32) -> Option<String> {
    let line = |value: u32| Some(format!("limits.{key} = {value}")).filter(|line| is_read(line));
    line(now.saturating_mul(2).max(1)).or_else(|| line(now.saturating_add(1)))
}

/// Returns a whole table as one line, with these changes. An operator's table replaces the shipped table, and must
/// contain all that was granted. A new table gets its required keys too. `None` if no line can express the table.
pub fn table(file: &File, table: TableName, mut changes: Vec<Change>) -> Option<String> {
    let (written, keys) = (file.table(table), table.keys());
    for key in keys.iter().filter(|_| written.is_none()) {
        let is_given = changes.iter().any(|change| matches!(change, Change::Text(name, _) if *name == key.name));
        changes.extend(key.placeholder.filter(|_| !is_given).map(|placeholder| text(key.name, placeholder)));
    }
    let mut parts = Vec::new();
    for key in &keys {
        if changes.iter().any(|change| matches!(change, Change::Without(name) if *name == key.name)) {
            continue;
        }
        let have = written.and_then(|grant| grant.keys.iter().find(|(name, _)| name.name == key.name));
        let mut texts: Vec<String> =
            have.iter().flat_map(|(_, values)| values).map(|value| value.text().to_owned()).collect();
        for change in &changes {
            let Change::Text(name, text) = change else { continue };
            if *name != key.name {
                continue;
            }
            // A star would match more than this object. A text that looks like a placeholder would mean another object.
            let is_literal = Template::parse(text).is_ok_and(|read| read.by_default().as_ref() == Some(text));
            if text.contains('*') && !text.contains("${") || !is_literal && !texts.contains(text) && !is_known(text) {
                return None;
            }
            match key.count {
                Count::One => texts = vec![text.clone()],
                Count::Some | Count::Any => texts.push(text.clone()),
            }
        }
        if texts.is_empty() && have.is_none() {
            continue;
        }
        let value = if key.count == Count::One { quoted(texts.first()?) } else { list(&texts) };
        parts.push(format!("{} = {value}", key.name));
    }
    let line = match parts.is_empty() {
        true => format!("[{table}]"),
        false => format!("{table} = {{ {} }}", parts.join(", ")),
    };
    is_read(&line).then_some(line)
}

/// Returns a list of texts as TOML.
fn list<T: AsRef<str>>(texts: &[T]) -> String {
    format!("[{}]", texts.iter().map(|text| quoted(text.as_ref())).collect::<Vec<_>>().join(", "))
}

/// Returns a text as TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// True if the text is a placeholder of the grammar. Such a text stands for an object that an operation does not name.
fn is_known(text: &str) -> bool {
    let keys = Capability::ALL.iter().flat_map(|capability| capability::keys(*capability));
    let is_default_link =
        text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) == Some(grammar::DEFAULT_LINK);
    is_default_link || keys.filter_map(|key| key.placeholder).any(|known| known == text)
}

/// True if the parser accepts the line as a file.
fn is_read(line: &str) -> bool {
    !line.contains('\n') && File::parse(line, Origin::Operator).is_ok()
}
