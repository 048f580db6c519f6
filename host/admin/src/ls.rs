//! `postern ls`: the attachments of this node.

use crate::account::{self, Attachment, Plugin, SHORT, short};
use crate::output::{self, Colour, WIDTH, one_line};
use anyhow::Result;
use postern_account::attachment::State;
use postern_account::writable;

/// The columns.
const HEADINGS: [&str; 7] = ["NETWORK", "CONTAINER", "INTERFACE", "ADDRESSES", "PLUGINS", "SINCE", "STATE"];

/// The columns that are shortened if the table would be too wide, in this order, each with its smallest width. The
/// container and the state are never shortened: people name an attachment by its container.
const SHRINKABLE: [(usize, usize); 4] = [(4, 8), (0, 8), (3, 18), (2, 8)];

/// Prints the table. Without `whole`, the table is shortened to [`WIDTH`] columns.
///
/// # Errors
/// The kernel or the state directory can't be looked at.
pub fn run(json: bool, whole: bool) -> Result<()> {
    let attachments = account::attachments()?;
    // An obstacle to writing belongs to no attachment. So it is printed on standard error, and scripts read only the
    // list.
    for obstacle in writable::obstacles(&postern_account::places::expected()) {
        let message = format!("{} {}", obstacle.path.display(), obstacle.what);
        output::say(format!("{message}; `postern doctor` shows the remedy"));
    }
    if json {
        return output::json(&attachments);
    }
    if attachments.is_empty() {
        return output::text("no attachments");
    }
    output::coloured(&table(&attachments, whole), &colours(&attachments))
}

/// Returns the words of the attachments' states with their colours.
pub fn colours(attachments: &[Attachment]) -> Vec<(String, Colour)> {
    attachments.iter().map(|one| (one.words(), colour(one.state))).collect()
}

fn colour(state: State) -> Colour {
    match state {
        State::Ok => Colour::Good,
        State::Incomplete | State::Replaced | State::ContainerGone | State::PreviousBoot | State::Held => {
            Colour::Doubtful
        }
        State::Stuck | State::Drift | State::Damaged => Colour::Bad,
    }
}

/// Returns the table of some attachments.
pub fn table(attachments: &[Attachment], whole: bool) -> String {
    let digits = if whole { usize::MAX } else { distinct(attachments) };
    let rows: Vec<[String; 7]> = std::iter::once(HEADINGS.map(str::to_owned))
        .chain(attachments.iter().map(|one| row(one, digits, whole)))
        .collect();
    let mut widths: Vec<usize> = (0..HEADINGS.len())
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    if !whole {
        shrink(&mut widths);
    }
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{:width$}", cut(cell, *width)));
        // No-break spaces join the parts, so a row that is still too wide is not broken.
        output::whole(cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the number of digits that make containers' IDs distinct, at least [`SHORT`].
fn distinct(attachments: &[Attachment]) -> usize {
    let mut ids: Vec<&str> = attachments.iter().filter_map(|one| one.container.as_deref()).collect();
    ids.sort_unstable();
    ids.dedup();
    // In sorted order, an ID shares its longest beginning with a neighbour.
    let common = |pair: &[&str]| match pair {
        [one, other] => one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count() + 1,
        _ => 0,
    };
    ids.windows(2).map(common).max().unwrap_or(0).max(SHORT)
}

/// Removes width until the table fits, or until no column can be shortened.
fn shrink(widths: &mut [usize]) {
    let gaps = 2 * widths.len().saturating_sub(1);
    for (column, least) in SHRINKABLE {
        let excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(WIDTH);
        if let Some(width) = widths.get_mut(column) {
            *width = (*width).min((*width).saturating_sub(excess).max(least));
        }
    }
}

/// Returns a cell in a number of columns; an ellipsis shows that it was cut.
fn cut(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return cell.to_owned();
    }
    cell.chars().take(width.saturating_sub(1)).chain(std::iter::once('…')).collect()
}

fn row(one: &Attachment, digits: usize, whole: bool) -> [String; 7] {
    let text = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".to_owned());
    let list = |texts: Vec<String>| if texts.is_empty() { "-".to_owned() } else { texts.join(",") };
    let cells = [
        text(&one.network),
        text(&one.container).chars().take(digits).collect(),
        text(&one.interface),
        list(one.addresses.clone()),
        list(one.plugins.iter().map(|plugin| named(plugin, whole)).collect()),
        if whole { one.age() } else { one.passed() },
        one.words(),
    ];
    cells.map(|cell| one_line(&cell))
}

/// Returns a plugin's name, with the beginning of its component's digest if there is room.
fn named(plugin: &Plugin, whole: bool) -> String {
    match &plugin.digest {
        Some(digest) if whole => format!("{}@{}", plugin.plugin, short(digest)),
        _ => plugin.plugin.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn attachment(container: &str) -> Attachment {
        Attachment {
            network: Some("a-network-of-a-long-name".to_owned()),
            container: Some(container.to_owned()),
            interface: Some("eth0".to_owned()),
            netns: None,
            since: None,
            addresses: vec!["fd00:1234:5678:9abc::1234/64".to_owned(), "10.22.0.2/24".to_owned()],
            plugins: Vec::new(),
            state: State::Ok,
            under_way: false,
            held_by: Vec::new(),
            record: PathBuf::new(),
            facts: Vec::new(),
            differences: Vec::new(),
        }
    }

    #[test]
    fn it_fits_and_no_two_containers_look_the_same() {
        let one = "2f5a0e7bb1c94d0a8f3e";
        let other = "2f5a0e7bb1c94d0b8f3e";
        let narrow = table(&[attachment(one), attachment(other)], false).replace('\u{a0}', " ");
        assert!(narrow.lines().all(|line| line.chars().count() <= WIDTH), "{narrow}");
        assert!(narrow.contains("2f5a0e7bb1c94d0a ") && narrow.contains("2f5a0e7bb1c94d0b "), "{narrow}");
        assert!(narrow.contains("a-netwo…"), "{narrow}");
        let whole = table(&[attachment(one), attachment(other)], true).replace('\u{a0}', " ");
        assert!(whole.contains(one) && whole.contains("10.22.0.2/24") && !whole.contains('…'), "{whole}");
        // IDs that share only a short beginning keep twelve digits.
        let short = table(&[attachment(one), attachment("9c41d77fe02b4d0a8f3e")], false);
        assert!(short.contains("2f5a0e7bb1c9\u{a0}") && short.contains("9c41d77fe02b\u{a0}"), "{short}");
    }
}
