//! Output for people and for scripts. All text for people goes through here. Text from outside goes through
//! [`postern_cni::terminal`]. Only a line with a single long word is wider than [`WIDTH`].

mod colour;
mod progress;

use anyhow::Result;
pub use colour::Colour;
pub use postern_cni::terminal::one_line;
use postern_cni::terminal::{self, printable};
pub use progress::during;
use serde::Serialize;
use std::fmt::Display;
use std::io::{BufRead, ErrorKind, IsTerminal, Write};

/// The default width of a terminal, in columns.
pub const WIDTH: usize = 80;

/// The widest first column. After a wider first column, the next line begins further left.
const COLUMN: usize = 32;

/// The mark for a space at which no line may be broken. Printing replaces it with a space.
const GLUE: char = '\u{a0}';

/// Prints a text for people, made fit for a terminal.
///
/// # Errors
/// Standard output can't be written. A closed pipe is no error.
pub fn text(text: &str) -> Result<()> {
    write(&fit(text))
}

/// Prints a text as [`text`] does. On a terminal, some words at the beginning or at the end of a line have colours.
///
/// # Errors
/// As [`text`].
pub fn coloured(text: &str, words: &[(impl AsRef<str>, Colour)]) -> Result<()> {
    let fitted = fit(text);
    write(&if colour::are_wanted() { colour::paint(&fitted, words) } else { fitted })
}

/// Prints an object for scripts, in ASCII.
///
/// # Errors
/// Standard output can't be written. A closed pipe is no error.
pub fn json(object: &impl Serialize) -> Result<()> {
    write(&json_text(object)?)
}

/// Returns the text that [`json`] prints, without a newline at its end.
///
/// # Errors
/// The object is no JSON.
pub fn json_text(object: &impl Serialize) -> Result<String> {
    Ok(terminal::json(&serde_json::to_string_pretty(object)?).trim_end().to_owned())
}

/// Prints a message on standard error, made fit for a terminal. A failure to print it is ignored.
pub fn say(message: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{}", fit(&format!("postern: {message}")));
}

/// Prints the result of a plugin unchanged: JSON in ASCII, without a newline at its end.
///
/// # Errors
/// Standard output can't be written. A closed pipe is no error.
pub fn result(json: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(json.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Prints an error of a network's plugins unchanged on standard error, without line breaks, for scripts.
pub fn complain(message: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", printable(message));
}

/// Prints a command-line error on standard error, in the words of the parser.
pub fn usage(words: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", fit(words));
}

/// Returns a number with its noun, in singular or plural: `1 error`, `2 errors`.
pub fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Asks the person at the terminal. Without a terminal the answer is no.
///
/// # Errors
/// Standard output can't be written, or the answer can't be read.
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

/// Returns a remedy: words, or a command.
pub fn remedy(text: &str, is_command: bool) -> String {
    if is_command { whole(text) } else { one_line(text) }
}

/// Returns a command, or another text for copying. The text stays on one line, at any length.
pub fn whole(text: &str) -> String {
    one_line(text).replace(' ', "\u{a0}")
}

fn fit(text: &str) -> String {
    // Glue can come from any text: its only effect is that it is printed as a space.
    let text = text.split(GLUE).map(printable).collect::<Vec<_>>().join("\u{a0}");
    let lines: Vec<String> = text.lines().map(|line| wrap(line, hang(line))).collect();
    lines.join("\n")
}

/// Breaks a line at spaces so that it fits [`WIDTH`]. The next lines begin at column `hang`. A comment stays a comment.
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

/// Returns the line with the text between backticks in one piece: a command, or a policy line, for copying.
fn unbroken(line: &str) -> String {
    // A text without a closing backtick is no quotation.
    let quoted = |at: usize, parts: usize| at % 2 == 1 && at + 1 < parts;
    let parts: Vec<&str> = line.split('`').collect();
    let glued = parts.iter().enumerate().map(|(at, part)| match quoted(at, parts.len()) {
        true => part.replace(' ', &GLUE.to_string()),
        false => (*part).to_owned(),
    });
    glued.collect::<Vec<String>>().join("`")
}

/// Returns the column at which a line continues: below its second column, if the first column is narrow. After a wide
/// first column, the line continues a little to the right of its beginning.
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
