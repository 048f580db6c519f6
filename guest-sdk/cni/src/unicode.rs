//! Texts with invalid Unicode, read as native plugins read them: Go's JSON decoder replaces each invalid byte, and each
//! lone surrogate, by U+FFFD.

use std::borrow::Cow;

/// The replacement for an invalid byte or a lone surrogate.
const REPLACEMENT: char = '\u{fffd}';

/// Returns bytes as text.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(
            bytes
                .utf8_chunks()
                .flat_map(|chunk| chunk.valid().chars().chain(chunk.invalid().iter().map(|_| REPLACEMENT)))
                .collect(),
        ),
    }
}

/// Returns the JSON without invalid bytes and lone surrogates, for a strict decoder.
pub fn json(bytes: &[u8]) -> Cow<'_, str> {
    let text = text(bytes);
    match without_lone_surrogates(&text) {
        Some(replaced) => Cow::Owned(replaced),
        None => text,
    }
}

/// Replaces each escaped lone surrogate by U+FFFD. `None` if the text has no lone surrogate.
fn without_lone_surrogates(text: &str) -> Option<String> {
    let mut replaced: Option<String> = None;
    let (mut rest, mut kept) = (text, 0);
    while let Some(at) = rest.find('\\') {
        let Some(escape) = rest.get(at..) else { break };
        let length = match (escaped(escape), escape.get(6..).and_then(escaped)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                let place = text.len() - escape.len();
                let replaced = replaced.get_or_insert_default();
                replaced.push_str(text.get(kept..place)?);
                replaced.push(REPLACEMENT);
                kept = place + 6;
                6
            }
            // The character after a backslash belongs to the escape, even if it is a backslash too.
            _ => 1 + escape.chars().nth(1).map_or(0, char::len_utf8),
        };
        rest = escape.get(length..)?;
    }
    let mut replaced = replaced?;
    replaced.push_str(text.get(kept..)?);
    Some(replaced)
}

/// Returns the number of an escape `\uXXXX` at the beginning of a text.
fn escaped(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_replaced() {
        assert_eq!(text(b"caf\xe9 \xe2\x82 x"), "caf\u{fffd} \u{fffd}\u{fffd} x");
        assert!(matches!(text("caf\u{e9}".as_bytes()), Cow::Borrowed("caf\u{e9}")));
    }

    #[test]
    fn surrogates_need_their_other_half() {
        for (given, expected) in [
            (r#""\ud83d\ude00 \\ud800 \u00e9""#, r#""\ud83d\ude00 \\ud800 \u00e9""#),
            (r#""\ud800""#, "\"\u{fffd}\""),
            (r#""a\udc00b\ud800\u0041\ud800\ud83d\ude00c""#, "\"a\u{fffd}b\u{fffd}\\u0041\u{fffd}\\ud83d\\ude00c\""),
            (r#""\\\ud800\é\u12""#, "\"\\\\\u{fffd}\\é\\u12\""),
            ("\\", "\\"),
            ("\\u", "\\u"),
        ] {
            assert_eq!(json(given.as_bytes()), expected);
        }
    }
}
