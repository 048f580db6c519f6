//! The display of texts to people. All texts go through this module, and none of them can control a terminal.
//!
//! A text is shown as ASCII. Every other character is shown by its number. There are four kinds of dangerous
//! characters:
//!
//! - characters that terminals obey (U+001B, U+009B)
//! - characters that change the direction of writing or begin a line (U+061C, U+200E, U+202A to U+202E, U+2028,
//!   U+2066 to U+2069)
//! - invisible characters (U+200B, U+00AD, U+FEFF, U+E0001, the whole of Unicode's `Default_Ignorable_Code_Point`)
//! - letters that look like others
//!
//! A list of the dangerous characters would be outdated with each version of Unicode. A rule that shows only ASCII is
//! never outdated.

use std::fmt::Write;

/// Returns a text of several lines for people. All characters except printable ASCII, line ends and `…` are escaped,
/// for example as `\u{202e}`.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // Postern itself writes the ellipsis where it has cut a text.
            '\n' | ' '..='~' | '…' => out.push(c),
            c => out.extend(c.escape_default()),
        }
    }
    out
}

/// Works as [`printable`], for a text that must stay on one line.
pub fn one_line(text: &str) -> String {
    printable(text).replace('\n', " ")
}

/// Returns a JSON text in ASCII with the same meaning. JSON has characters outside ASCII only in strings.
pub fn json(text: &str) -> String {
    json_with(text, |c| matches!(c, '\n' | ' '..='~'))
}

/// Returns a JSON text with the same meaning. It keeps the characters that `stays` accepts. Each other character
/// becomes its number, or two numbers beyond U+FFFF (RFC 8259, 7).
pub(crate) fn json_with(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if stays(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String can't fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Characters that once reached a terminal, and more of each kind.
    const HOSTILE: &str = "\u{1b}[2J\u{7}\u{7f}\u{9b}31m\u{61c}\u{200b}\u{200e}\u{2028}\u{2029}\u{202e}\u{2066}\u{feff}\u{e0001}\u{ad}\u{3164}\u{301}é\r\t";

    #[test]
    fn nothing_speaks_to_the_terminal() {
        let shown = printable(HOSTILE);
        assert!(shown.chars().all(|c| c.is_ascii_graphic()), "{shown}");
        assert!(shown.contains("\\u{1b}[2J\\u{7}\\u{7f}\\u{9b}31m\\u{61c}"), "{shown}");
        assert_eq!(printable("a b…\nc"), "a b…\nc");
        assert_eq!(one_line("a\nb"), "a b");
    }

    #[test]
    fn json_says_the_same() {
        let text = format!("[\"{}\",\n \"\u{1f600}\"]", HOSTILE.replace(char::is_control, ""));
        let shown = json(&text);
        assert!(shown.chars().all(|c| c.is_ascii_graphic() || matches!(c, ' ' | '\n')), "{shown}");
        let parse = |text: &str| crate::Json::parse(text.as_bytes(), 1000).unwrap();
        assert_eq!(parse(&shown), parse(&text));
    }
}
