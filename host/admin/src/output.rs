//! Printing, for people and for scripts.

use anyhow::Result;
use serde::Serialize;
use std::io::{ErrorKind, Write};

/// Prints a text for people, made fit for a terminal.
///
/// # Errors
/// Standard output can't be written. A reader that has seen enough is no error.
pub fn text(text: &str) -> Result<()> {
    write(&printable(text))
}

/// Prints an object for scripts.
///
/// # Errors
/// As [`text`].
pub fn json(object: &impl Serialize) -> Result<()> {
    write(&serde_json::to_string_pretty(object)?)
}

fn write(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Text fit for a terminal: what somebody else wrote must not move the cursor or hide among look-alikes.
pub fn printable(text: &str) -> String {
    // The ellipsis is Postern's own, where it cuts a text.
    let plain = |c: char| matches!(c, '\n' | ' ' | '…') || c.is_ascii_graphic();
    text.chars().map(|c| if plain(c) { c.to_string() } else { c.escape_default().to_string() }).collect()
}

/// The same for a text that must not begin a line of its own.
pub fn one_line(text: &str) -> String {
    printable(text).replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_speaks_to_the_terminal() {
        assert_eq!(printable("a\n\u{1b}[2J\u{202e}é\r"), "a\n\\u{1b}[2J\\u{202e}\\u{e9}\\r");
        assert_eq!(one_line("a\nb…"), "a b…");
    }
}
