//! Printing, for people and for scripts. What people read goes through here alone: no text that somebody else wrote gets
//! past [`postern_cni::terminal`], and no line is wider than [`WIDTH`] unless a single word is.

use anyhow::Result;
pub use postern_cni::terminal::one_line;
use postern_cni::terminal::{self, printable};
use serde::Serialize;
use std::fmt::Display;
use std::io::{BufRead, ErrorKind, IsTerminal, Write};

/// Columns of a terminal that nobody has made wider.
pub const WIDTH: usize = 80;

/// Widest first column: what follows a wider one begins further left on the next line.
const COLUMN: usize = 32;

/// Stands for a space at which no line may be broken, until the text is printed.
const GLUE: char = '\u{a0}';

/// Prints a text for people, made fit for a terminal.
///
/// # Errors
/// Standard output can't be written. A reader that has seen enough is no error.
pub fn text(text: &str) -> Result<()> {
    write(&fit(text))
}

/// Prints an object for scripts, in ASCII.
///
/// # Errors
/// As [`text`].
pub fn json(object: &impl Serialize) -> Result<()> {
    write(&terminal::json(&serde_json::to_string_pretty(object)?))
}

/// Prints a message on standard error, made fit for a terminal. Where nobody reads it, nothing is lost but words.
pub fn say(message: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{}", fit(&format!("postern: {message}")));
}

/// Says on standard error what is wrong with a command line, as its parser words it.
pub fn usage(words: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", fit(words));
}

/// A number of things, of which there may be one: `1 error`, `2 errors`.
pub fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Asks whoever sits there. Nobody: no.
///
/// # Errors
/// Standard output can't be written, or the answer not be read.
pub fn confirmed(question: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Ok(false);
    }
    let mut out = std::io::stdout().lock();
    write!(out, "{} [y/N] ", fit(question)).and_then(|()| out.flush())?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn write(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// What helps: words, or a command.
pub fn remedy(text: &str, is_command: bool) -> String {
    if is_command { whole(text) } else { one_line(text) }
}

/// A command, or another text that somebody will copy: it stays on one line, however long.
pub fn whole(text: &str) -> String {
    one_line(text).replace(' ', "\u{a0}")
}

fn fit(text: &str) -> String {
    // Whoever wrote it, all that glue can do is to be printed as a space.
    let text = text.split(GLUE).map(printable).collect::<Vec<_>>().join("\u{a0}");
    let lines: Vec<String> = text.lines().map(|line| wrap(line, hang(line))).collect();
    lines.join("\n")
}

/// Breaks a line at spaces so that it fits [`WIDTH`]; what does not fit goes on at column `hang`. A comment stays one.
pub fn wrap(line: &str, hang: usize) -> String {
    let mark = if line.starts_with('#') { "#" } else { "" };
    let next = format!("\n{mark:<hang$}");
    let mut wrapped = String::new();
    let (mut column, mut begun) = (0, false);
    for piece in unbroken(line).split_inclusive(' ') {
        let word = piece.trim_end_matches(' ').chars().count();
        if begun && word > 0 && column + word > WIDTH {
            wrapped.truncate(wrapped.trim_end_matches(' ').len());
            wrapped.push_str(&next);
            column = hang;
        }
        wrapped.push_str(piece);
        column += piece.chars().count();
        begun |= word > 0;
    }
    wrapped.truncate(wrapped.trim_end_matches(' ').len());
    wrapped.replace(GLUE, " ")
}

/// The line with what stands between backticks in one piece: a command, or a line of policy, that is to be copied.
fn unbroken(line: &str) -> String {
    // One that is never closed is no quotation.
    let quoted = |at: usize, parts: usize| at % 2 == 1 && at + 1 < parts;
    let parts: Vec<&str> = line.split('`').collect();
    let glued = parts.iter().enumerate().map(|(at, part)| match quoted(at, parts.len()) {
        true => part.replace(' ', &GLUE.to_string()),
        false => (*part).to_owned(),
    });
    glued.collect::<Vec<String>>().join("`")
}

/// Where a line goes on: below its second column if it has a narrow first one, else a little to the right of its beginning.
fn hang(line: &str) -> usize {
    let start = line.find(|c| c != ' ' && c != '#').unwrap_or(0);
    let column = line.get(start..).and_then(|rest| {
        let gap = rest.find("  ")?;
        let second = rest.get(gap..)?.find(|c| c != ' ')?;
        Some(start + gap + second)
    });
    column.filter(|column| *column <= COLUMN).unwrap_or(start + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_quoted() {
        assert_eq!(fit("a\n\u{1b}[2J\u{202e}\u{a0}é\r"), "a\n\\u{1b}[2J\\u{202e} \\u{e9}\\r");
    }

    #[test]
    fn lines_are_broken_at_spaces_and_commands_are_not() {
        let word = "word ".repeat(30);
        for line in [word.clone(), format!("  name      {word}"), format!("# {word}"), format!("   1  {word}")] {
            let fitted = fit(&line);
            assert!(fitted.lines().all(|line| line.len() <= WIDTH && !line.ends_with(' ')), "{fitted}");
            let joined = fitted.lines().map(|line| line.trim_matches([' ', '#'])).collect::<Vec<_>>().join(" ");
            assert_eq!(joined.split_whitespace().filter(|word| *word == "word").count(), 30, "{fitted}");
        }
        assert!(fit(&format!("  name      {word}")).lines().skip(1).all(|line| line.starts_with("            word")));
        assert!(fit(&format!("# {word}")).lines().all(|line| line.starts_with("# ")));
        let command = format!("printf '{word}' > file");
        assert_eq!(fit(&format!("remedy: {}", whole(&command))).lines().last(), Some(format!("  {command}").as_str()));
        assert_eq!(fit("short"), "short");
    }
}
