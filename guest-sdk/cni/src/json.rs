//! JSON as it was written: with its order, duplicates and spelling.
//!
//! A `serde_json::Value` loses the order of keys and repeated keys. Native plugins depend on both (see
//! [`Fields`](crate::Fields)).

use crate::error::Error;
use crate::{lists, unicode};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Number, Value};
use std::borrow::Cow;
use std::fmt;

/// A JSON document or a part of a document.
///
/// [`Json::parse`] limits the depth to 127, so code that walks a tree may recurse.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Json {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Array(Vec<Json>),
    /// The members in the order of the document; keys may repeat.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses exactly one document of at most `limit` bytes; white space around the document is allowed.
    ///
    /// This function is stricter than native plugins where tolerance is dangerous: numbers must fit a double, and
    /// nesting ends at 127. Invalid Unicode is replaced, as native plugins do ([`crate::unicode`]).
    ///
    /// # Errors
    /// Code 6.
    pub fn parse(bytes: &[u8], limit: usize) -> Result<Json, Error> {
        Tree { without_lists: false }.parse(bytes, limit)
    }

    /// Parses as [`Json::parse`], but skips GC's lists of valid attachments, even lists of a wrong form. Plugins don't
    /// use these lists: the host has read them before. The lists may be most of the document.
    ///
    /// # Errors
    /// The errors of [`Json::parse`].
    pub fn parse_without_lists(bytes: &[u8], limit: usize) -> Result<Json, Error> {
        Tree { without_lists: true }.parse(bytes, limit)
    }

    /// True if this is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Json::Null)
    }

    /// Returns the name that Go's error messages use for this kind of value.
    pub fn kind(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "bool",
            Json::Number(_) => "number",
            Json::String(_) => "string",
            Json::Array(_) => "array",
            Json::Object(_) => "object",
        }
    }

    /// Returns the document with its keys sorted by their bytes at every level. Only the last of equal keys stays, and
    /// whole numbers lose fraction and exponent. Native plugins do this to a `prevResult` before they decode it, and to
    /// every result from 1.0.0 on.
    #[must_use]
    pub fn sorted(mut self) -> Json {
        self.sort();
        self
    }

    fn sort(&mut self) {
        match self {
            Json::Array(items) => items.iter_mut().for_each(Json::sort),
            // Whole numbers of 64 bits keep all their digits, which the native plugins lose beyond 53 bits.
            Json::Number(number) if number.is_f64() => {
                if let Some(whole) = whole(number) {
                    *number = whole;
                }
            }
            Json::Object(entries) => {
                // Equal keys stay in their order. The later key replaces the earlier key.
                entries.sort_by(|(one, _), (other, _)| one.cmp(other));
                entries.dedup_by(|later, earlier| {
                    let is_same = later.0 == earlier.0;
                    if is_same {
                        std::mem::swap(later, earlier);
                    }
                    is_same
                });
                entries.iter_mut().for_each(|(_, value)| value.sort());
            }
            _ => {}
        }
    }
}

/// Returns a number without fraction as an integer, if a double holds it exactly. Other numbers stay unchanged: no
/// result has such numbers, and the code to write their digits would make each plugin larger.
#[expect(clippy::cast_possible_truncation, reason = "it is a whole number of at most 53 bits")]
fn whole(number: &Number) -> Option<Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= EXACT)?;
    Some(Number::from(float as i64))
}

impl From<&str> for Json {
    fn from(text: &str) -> Json {
        Json::String(text.to_owned())
    }
}

impl From<i64> for Json {
    fn from(number: i64) -> Json {
        Json::Number(number.into())
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Json {
        match value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(value),
            Value::Number(number) => Json::Number(number),
            Value::String(text) => Json::String(text),
            Value::Array(items) => Json::Array(items.into_iter().map(Json::from).collect()),
            Value::Object(map) => Json::Object(map.into_iter().map(|(key, value)| (key, value.into())).collect()),
        }
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Null => serializer.serialize_unit(),
            Json::Bool(value) => serializer.serialize_bool(*value),
            Json::Number(number) => number.serialize(serializer),
            Json::String(text) => serializer.serialize_str(text),
            Json::Array(items) => serializer.collect_seq(items),
            Json::Object(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(Tree { without_lists: false })
    }
}

/// A visitor that builds a value with all its parts.
#[derive(Clone, Copy)]
struct Tree {
    /// True if members with GC's lists are skipped at the top level.
    without_lists: bool,
}

impl Tree {
    fn parse(self, bytes: &[u8], limit: usize) -> Result<Json, Error> {
        let length = bytes.len();
        if length > limit {
            return Err(Error::decoding(format!("{length} bytes of JSON are more than the limit of {limit}")));
        }
        // Bytes with invalid Unicode are read again, with U+FFFD in place of each invalid part.
        let read = self.read(bytes).or_else(|error| match unicode::json(bytes) {
            Cow::Owned(replaced) => self.read(replaced.as_bytes()),
            Cow::Borrowed(_) => Err(error),
        });
        read.map_err(|error| match error.classify() {
            // This is the native plugins' message.
            serde_json::error::Category::Eof => Error::decoding("unexpected end of JSON input"),
            _ => Error::decoding(error.to_string()),
        })
    }

    fn read(self, bytes: &[u8]) -> serde_json::Result<Json> {
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let json = deserializer.deserialize_any(self)?;
        deserializer.end().map(|()| json)
    }
}

impl<'de> Visitor<'de> for Tree {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Json, E> {
        Number::from_f64(number).map(Json::Number).ok_or_else(|| E::custom("number is not finite"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if self.without_lists && lists::is_list(&key) {
                map.next_value::<IgnoredAny>()?;
            } else {
                entries.push((key, map.next_value()?));
            }
        }
        Ok(Json::Object(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Json, Error> {
        Json::parse(text.as_bytes(), 1 << 20)
    }

    #[test]
    fn order_and_duplicates_are_kept() {
        let text = r#"{"b":1,"a":[null,true,"x",-2,1.5],"b":{"z":0,"Z":1}}"#;
        assert_eq!(serde_json::to_string(&parse(text).unwrap()).unwrap(), text);
        let sorted = |text| serde_json::to_string(&parse(text).unwrap().sorted()).unwrap();
        assert_eq!(sorted(text), r#"{"a":[null,true,"x",-2,1.5],"b":{"Z":1,"z":0}}"#);
        assert_eq!(sorted(r#"{"mtu":1500.0,"n":[1e3,-0,0.5]}"#), r#"{"mtu":1500,"n":[1000,0,0.5]}"#);
        // Only the last of several equal keys stays, and its value is sorted too.
        let text = r#"{"k":{"b":0},"a":1,"k":2,"k":[{"z":1,"y":[{"d":3,"c":2,"d":1}]}],"a":{"a":1,"a":null}}"#;
        assert_eq!(sorted(text), r#"{"a":{"a":null},"k":[{"y":[{"c":2,"d":1}],"z":1}]}"#);
    }

    #[test]
    fn values_there_and_back() {
        let json = parse(r#"{"a":[null,true,"x",-2,1.5],"b":{"Z":1,"z":0}}"#).unwrap();
        assert_eq!(Json::from(serde_json::to_value(&json).unwrap()), json);
        // serde_json's private markers are ordinary keys here.
        let marked = parse(r#"{"$serde_json::private::Number":"1"}"#).unwrap();
        assert_eq!(marked.kind(), "object");
    }

    #[test]
    fn broken_documents() {
        for (text, message) in [
            ("", "unexpected end of JSON input"),
            ("  \n", "unexpected end of JSON input"),
            ("{\"a\":", "unexpected end of JSON input"),
            ("{} {}", "trailing characters"),
            ("{}x", "trailing characters"),
            ("{} \0", "trailing characters"),
            ("\u{feff}{}", "expected value"),
            ("{'a':1}", "key must be a string"),
            ("{\"a\":1,}", "trailing comma"),
            ("// c\n{}", "expected value"),
            ("\"a\nb\"", "control character"),
            ("\"a\0b\"", "control character"),
            (r#""\ud80""#, "invalid escape"),
            ("1e400", "number out of range"),
            ("01", "invalid number"),
            ("NaN", "expected value"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.code, 6);
            assert!(error.msg.contains(message), "{text:?}: {error}");
        }
        assert_eq!(Json::parse(b"{\"a\":1}\xff", 100).unwrap_err().code, 6);
    }

    #[test]
    fn what_is_no_unicode_is_replaced() {
        for (text, expected) in [
            (&b"\"\xff\""[..], "\u{fffd}"),
            (b"\"\xed\xa0\x80\"", "\u{fffd}\u{fffd}\u{fffd}"),
            (br#""\ud800""#, "\u{fffd}"),
            (br#""\udc00x""#, "\u{fffd}x"),
            (br#""\ud800\u0041""#, "\u{fffd}A"),
        ] {
            assert_eq!(Json::parse(text, 100).unwrap(), Json::from(expected));
        }
    }

    #[test]
    fn depth_and_size_have_limits() {
        for open in ["[", "{\"a\":", "[{\"a\":"] {
            let error = parse(&open.repeat(10_000)).unwrap_err();
            assert_eq!(error.code, 6);
            assert!(error.msg.contains("recursion limit"), "{error}");
        }
        let deepest = format!("{}{}", "[".repeat(127), "]".repeat(127));
        let tree = parse(&deepest).unwrap();
        assert_eq!(Json::from(serde_json::to_value(&tree).unwrap()), tree);
        assert!(parse(&format!("[{deepest}]")).is_err());
        assert!(Json::parse(b"[1]", 3).is_ok());
        let error = Json::parse(b"[1] ", 3).unwrap_err();
        assert_eq!((error.code, error.msg.as_str()), (6, "4 bytes of JSON are more than the limit of 3"));
    }
}
