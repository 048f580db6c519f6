//! `postern ls`: the attachments of this node.

use crate::account::{self, Attachment, Plugin, short};
use crate::output::{self, one_line};
use anyhow::Result;

const HEADINGS: [&str; 7] = ["NETWORK", "CONTAINER", "INTERFACE", "ADDRESSES", "PLUGINS", "SINCE", "STATE"];

/// Prints the table.
///
/// # Errors
/// The kernel or the state directory can't be looked at.
pub fn run(json: bool) -> Result<()> {
    let attachments = account::attachments()?;
    if json {
        return output::json(&attachments);
    }
    if attachments.is_empty() {
        return output::text("no attachments");
    }
    output::text(&table(&attachments))
}

/// The table of some attachments.
pub fn table(attachments: &[Attachment]) -> String {
    let rows: Vec<[String; 7]> =
        std::iter::once(HEADINGS.map(str::to_owned)).chain(attachments.iter().map(row)).collect();
    let widths: Vec<usize> = (0..HEADINGS.len())
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0))
        .collect();
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn row(one: &Attachment) -> [String; 7] {
    let text = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".to_owned());
    let list = |texts: Vec<String>| if texts.is_empty() { "-".to_owned() } else { texts.join(",") };
    let cells = [
        text(&one.network),
        short(&text(&one.container)),
        text(&one.interface),
        list(one.addresses.clone()),
        list(one.plugins.iter().map(named).collect()),
        one.age(),
        one.words(),
    ];
    cells.map(|cell| one_line(&cell))
}

/// A plugin with the beginning of its component's digest.
fn named(plugin: &Plugin) -> String {
    match &plugin.digest {
        Some(digest) => format!("{}@{}", plugin.plugin, short(digest)),
        None => plugin.plugin.clone(),
    }
}
