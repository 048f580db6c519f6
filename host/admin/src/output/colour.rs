//! Colours of words that say how good something is. They are for terminals only, and not with `NO_COLOR`
//! (<https://no-color.org>).

use std::io::IsTerminal;

/// A colour by its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Nothing is wrong.
    Good,
    /// Something may go wrong, or can be cleaned up.
    Doubtful,
    /// Something is wrong.
    Bad,
}

impl Colour {
    /// Returns the terminal's sequence, in its own green, yellow or red.
    fn sequence(self) -> &'static str {
        match self {
            Self::Good => "\u{1b}[32m",
            Self::Doubtful => "\u{1b}[33m",
            Self::Bad => "\u{1b}[31m",
        }
    }
}

/// The terminal's usual colours.
const USUAL: &str = "\u{1b}[0m";

/// True if standard output is a terminal with colours, and its user wants colours.
pub fn are_wanted() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal() && !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Gives colours to the words that a line begins or ends with. The text has no control characters yet, and its lines are
/// broken already.
pub fn paint(text: &str, words: &[(impl AsRef<str>, Colour)]) -> String {
    text.lines().map(|line| painted(line, words)).collect::<Vec<_>>().join("\n")
}

fn painted(line: &str, words: &[(impl AsRef<str>, Colour)]) -> String {
    for (word, colour) in words {
        let word = word.as_ref();
        let coloured = format!("{}{word}{USUAL}", colour.sequence());
        if let Some(rest) = line.strip_prefix(word).filter(|rest| rest.is_empty() || rest.starts_with(' ')) {
            return format!("{coloured}{rest}");
        }
        if let Some(rest) = line.strip_suffix(word).filter(|rest| rest.ends_with(' ')) {
            return format!("{rest}{coloured}");
        }
    }
    line.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_words_at_the_ends_of_lines_have_colours() {
        let words = [("ok", Colour::Good), ("ERROR", Colour::Bad)];
        assert_eq!(
            paint("NET STATE\nn    ok\nERROR   x\nERRORS x\nlook\nok is ok here", &words),
            "NET STATE\nn    \u{1b}[32mok\u{1b}[0m\n\u{1b}[31mERROR\u{1b}[0m   x\nERRORS x\nlook\n\u{1b}[32mok\u{1b}[0m is ok here"
        );
        assert_eq!(paint("n    ok", &[("", Colour::Good); 0]), "n    ok");
    }
}
