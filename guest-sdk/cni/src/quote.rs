//! Quoting as Go's `%q` does it, for messages that runtimes know.

use std::fmt::Write;

/// Returns `text` in double quotes, with every unprintable character escaped.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if c.is_ascii_control() => escape(&mut out, 'x', 2, c),
            c if printable(c) => out.push(c),
            c if u32::from(c) < 0x1_0000 => escape(&mut out, 'u', 4, c),
            c => escape(&mut out, 'U', 8, c),
        }
    }
    out.push('"');
    out
}

/// Returns several quoted texts in square brackets, with blanks between them.
pub(crate) fn quote_list<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = texts.into_iter().map(quote).collect();
    format!("[{}]", quoted.join(" "))
}

fn escape(out: &mut String, letter: char, width: usize, c: char) {
    // Writing to a String can't fail.
    let _ = write!(out, "\\{letter}{:0width$x}", u32::from(c));
}

/// True for a printable character by Rust's own table, which `escape_debug` uses. Letters and digits are tested first:
/// `escape_debug` treats combining marks as unprintable, and Go does not.
fn printable(c: char) -> bool {
    c.is_ascii() || c.is_alphanumeric() || c.escape_debug().eq([c])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_go_quotes() {
        assert_eq!(quote("a\"b\\c\n\u{1}\u{7f}"), r#""a\"b\\c\n\x01\x7f""#);
        assert_eq!(quote("ü 世"), "\"ü 世\"");
        assert_eq!(quote("\u{a0}\u{200b}\u{e0001}"), r#""\u00a0\u200b\U000e0001""#);
        assert_eq!(quote_list(["a", "b c"]), r#"["a" "b c"]"#);
        assert_eq!(quote_list([]), "[]");
    }
}
