//! A printer for JSON that follows Go's encoder, but prints only ASCII.

use crate::json::Json;
use crate::terminal::json_with;
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};

/// Prints on one line, without blanks and without a newline at its end.
pub fn compact(json: &Json) -> String {
    in_ascii(serde_json::to_string(json).unwrap_or_default())
}

/// Prints with an indentation of 4, without a newline at its end.
pub fn pretty(json: &Json) -> String {
    let mut out = Vec::new();
    // The keys of a tree are texts, and writing to memory can't fail.
    let _ = json.serialize(&mut Serializer::with_formatter(&mut out, PrettyFormatter::with_indent(b"    ")));
    in_ascii(String::from_utf8(out).unwrap_or_default())
}

/// Escapes the characters that Go escapes: characters that could end a script element, and JavaScript's two line
/// separators. Unlike Go, it also escapes all characters outside ASCII, as in every text for a terminal
/// ([`crate::terminal`]). The JSON still means the same. Outside of strings JSON has none of these characters.
fn in_ascii(json: String) -> String {
    // Nearly all texts have none of these characters.
    if json.chars().all(stays) {
        return json;
    }
    json_with(&json, stays)
}

fn stays(c: char) -> bool {
    matches!(c, '\n' | ' '..='~') && !matches!(c, '<' | '>' | '&')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Json {
        Json::parse(text.as_bytes(), 1000).unwrap()
    }

    #[test]
    fn indented() {
        let json = parse(r#"{"a":[],"b":{},"c":[1,{"d":null}],"e":true}"#);
        assert_eq!(
            pretty(&json),
            "{\n    \"a\": [],\n    \"b\": {},\n    \"c\": [\n        1,\n        {\n            \"d\": null\n        }\n    ],\n    \"e\": true\n}"
        );
        assert_eq!(compact(&json), r#"{"a":[],"b":{},"c":[1,{"d":null}],"e":true}"#);
    }

    #[test]
    fn escapes() {
        let json = Json::from("<&>\"\\/\n\r\t\u{8}\u{c}\u{1}\u{7f}\u{9b}\u{2028}\u{2029}é世\u{1f600}");
        assert_eq!(
            compact(&json),
            "\"\\u003c\\u0026\\u003e\\\"\\\\/\\n\\r\\t\\b\\f\\u0001\\u007f\\u009b\\u2028\\u2029\\u00e9\\u4e16\\ud83d\\ude00\""
        );
        assert_eq!(parse(&compact(&json)), json);
    }
}
