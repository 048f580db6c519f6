//! Patterns: the texts that a value of a policy matches.
//!
//! `*` in the text of a policy file matches any characters except `/`. Text from the configuration matches only itself,
//! whatever it contains. In such text, `br*` is the bridge with exactly this name.

use crate::prelude::*;
use core::fmt;

/// A text to compare with. Parts of it may be open, by a `*` in a policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The parts between slashes. A `*` matches no slash.
    segments: Vec<Vec<Token>>,
    written: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Text(String),
    Any,
}

impl Default for Pattern {
    fn default() -> Self {
        Self { segments: vec![Vec::new()], written: true }
    }
}

impl Pattern {
    /// Appends text of a policy file.
    pub fn push_written(&mut self, text: &str) {
        for (number, piece) in text.split('*').enumerate() {
            if number > 0 {
                self.push(Token::Any);
            }
            self.push_text(piece);
        }
    }

    /// Appends text of the configuration.
    pub fn push_value(&mut self, text: &str) {
        self.written = false;
        self.push_text(text);
    }

    fn push_text(&mut self, text: &str) {
        for (number, piece) in text.split('/').enumerate() {
            if number > 0 {
                self.segments.push(Vec::new());
            }
            if !piece.is_empty() {
                self.push(Token::Text(piece.to_owned()));
            }
        }
    }

    fn push(&mut self, token: Token) {
        let Some(segment) = self.segments.last_mut() else { return };
        match (segment.last_mut(), token) {
            (Some(Token::Any), Token::Any) => {}
            (Some(Token::Text(before)), Token::Text(more)) => before.push_str(&more),
            (_, token) => segment.push(token),
        }
    }

    /// True if the whole text is from the policy file.
    pub fn is_written(&self) -> bool {
        self.written
    }

    /// True if the pattern matches `text`.
    pub fn matches(&self, text: &str) -> bool {
        let mut pieces = text.split('/');
        self.segments.iter().all(|segment| pieces.next().is_some_and(|piece| segment_matches(segment, piece)))
            && pieces.next().is_none()
    }
}

fn segment_matches(segment: &[Token], text: &str) -> bool {
    // The open part is a file name, and must not lead out of the directory.
    let way_out = segment.contains(&Token::Any) && matches!(text, "." | "..");
    !way_out && tokens_match(segment, text)
}

fn tokens_match(tokens: &[Token], text: &str) -> bool {
    match tokens {
        [] => text.is_empty(),
        [Token::Any] => true,
        [Token::Any, Token::Text(end)] => text.ends_with(end.as_str()),
        // The first match leaves the most text for the rest of the pattern.
        [Token::Any, Token::Text(next), rest @ ..] => {
            text.split_once(next.as_str()).is_some_and(|(_, after)| tokens_match(rest, after))
        }
        [Token::Any, rest @ ..] => tokens_match(rest, text),
        [Token::Text(start), rest @ ..] => {
            text.strip_prefix(start.as_str()).is_some_and(|after| tokens_match(rest, after))
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, segment) in self.segments.iter().enumerate() {
            if number > 0 {
                f.write_str("/")?;
            }
            for token in segment {
                f.write_str(match token {
                    Token::Text(text) => text,
                    Token::Any => "*",
                })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> Pattern {
        let mut pattern = Pattern::default();
        pattern.push_written(text);
        assert_eq!(pattern.to_string(), text);
        pattern
    }

    #[test]
    fn a_star_is_any_run_of_characters_but_slashes() {
        let cases = [
            ("br*", "br", true),
            ("br*", "br0", true),
            ("br*", "xbr0", false),
            ("br*", "br/0", false),
            ("*", "", true),
            ("*", "a/b", false),
            ("*", "..", false),
            ("/var/lib/*/networks", "/var/lib/cni/networks", true),
            ("/var/lib/*/networks", "/var/lib/a/b/networks", false),
            ("/var/lib/*/networks", "/var/lib/../networks", false),
            ("/var/lib/*", "/var/lib", false),
            ("/etc/*.conf", "/etc/resolv.conf", true),
            ("/etc/*.conf", "/etc/resolv.conf/x", false),
            ("a*b*c", "abbc", true),
            ("a*b*c", "acb", false),
            ("a*b*b", "ab", false),
            ("/*", "/x", true),
            ("*x*", "axb", true),
            ("*x*", "ab", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(written(pattern).matches(text), expected, "{pattern} {text}");
        }
        let mut twice = Pattern::default();
        twice.push_written("a**b");
        assert_eq!(twice.to_string(), "a*b");
    }

    #[test]
    fn what_the_configuration_says_is_literal() {
        let mut pattern = Pattern::default();
        pattern.push_value("br*");
        assert!(pattern.matches("br*") && !pattern.matches("br0") && !pattern.is_written());
        let mut mixed = Pattern::default();
        mixed.push_written("/data/*/");
        mixed.push_value("a*/b");
        assert!(mixed.matches("/data/x/a*/b"));
        assert!(!mixed.matches("/data/x/ab/b") && !mixed.matches("/data/a*/b"));
    }
}
