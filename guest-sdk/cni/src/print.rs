//! Printing JSON as Go's encoder does, but in ASCII.

use crate::json::Json;
use crate::terminal::escape_json;
use std::fmt::Write;

/// On one line, without blanks and without a newline at its end.
pub fn compact(json: &Json) -> String {
    let mut out = String::new();
    value(&mut out, json, None);
    out
}

/// Indented by 4, without a newline at its end.
pub fn pretty(json: &Json) -> String {
    let mut out = String::new();
    value(&mut out, json, Some(0));
    out
}

/// `depth` is the indentation, in steps, of the line that the value begins on.
fn value(out: &mut String, json: &Json, depth: Option<usize>) {
    match json {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        // Writing to a String can't fail.
        Json::Number(number) => {
            let _ = write!(out, "{number}");
        }
        Json::String(text) => string(out, text),
        Json::Array(items) => bracketed(out, ('[', ']'), depth, items, value),
        Json::Object(entries) => bracketed(out, ('{', '}'), depth, entries, |out, (key, entry), depth| {
            string(out, key);
            out.push_str(if depth.is_some() { ": " } else { ":" });
            value(out, entry, depth);
        }),
    }
}

fn bracketed<T>(
    out: &mut String,
    (open, close): (char, char),
    depth: Option<usize>,
    items: &[T],
    print: impl Fn(&mut String, &T, Option<usize>),
) {
    out.push(open);
    let inner = depth.map(|depth| depth + 1);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        newline(out, inner);
        print(out, item, inner);
    }
    if !items.is_empty() {
        newline(out, depth);
    }
    out.push(close);
}

fn newline(out: &mut String, depth: Option<usize>) {
    if let Some(depth) = depth {
        out.push('\n');
        out.extend(std::iter::repeat_n("    ", depth));
    }
}

/// Go escapes what could end a script element, and the two line separators that JavaScript once minded. Unlike Go this
/// escapes all that is not ASCII, as every text that a terminal may show ([`crate::terminal`]): to whoever reads JSON it
/// says the same.
fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' => escape_json(out, c),
            ' '..='~' => out.push(c),
            c => escape_json(out, c),
        }
    }
    out.push('"');
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
