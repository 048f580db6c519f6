//! GC's lists of valid attachments. They may have thousands of entries, so a tree of [`Json`] for them would be
//! expensive. It would be most of the cost of a collection that removes nothing. Here they are read without a tree, or
//! skipped.

use crate::conf::Attachment;
use crate::error::Error;
use crate::fields::same_name;
use crate::json::{Json, undecodable};
use crate::unicode;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// The lists, under the keys that [`NetConf`](crate::NetConf) names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// `cni.dev/valid-attachments`.
    pub valid_attachments: Option<Vec<Attachment>>,
    /// `cni.dev/attachments`.
    pub attachments: Option<Vec<Attachment>>,
}

/// Parses as [`Json::parse`], with the lists separate. A list with a wrong form, or a list that is there twice, stays
/// in the tree. The code that reads it there reports the error.
///
/// # Errors
/// As [`Json::parse`].
pub fn parse_with_lists(bytes: &[u8], limit: usize) -> Result<(Json, Lists), Error> {
    match parse(bytes, limit, Document).or_else(|error| match unicode::json(bytes) {
        Cow::Owned(replaced) => parse(replaced.as_bytes(), usize::MAX, Document),
        Cow::Borrowed(_) => Err(error),
    })? {
        Some(read) => Ok(read),
        None => Json::parse(bytes, limit).map(|json| (json, Lists::default())),
    }
}

/// Returns the result of `visitor` for the document; `None` if it is no object, or if `visitor` returns `None`.
fn parse<'de, T>(
    bytes: &'de [u8],
    limit: usize,
    visitor: impl Visitor<'de, Value = Option<T>>,
) -> Result<Option<T>, Error> {
    if bytes.len() > limit || bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Ok(None);
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = deserializer.deserialize_map(visitor).and_then(|read| deserializer.end().map(|()| read));
    read.map_err(undecodable)
}

/// Returns the index of the list that a key names.
pub(crate) fn number(key: &str) -> Option<usize> {
    ["cni.dev/valid-attachments", "cni.dev/attachments"].iter().position(|name| same_name(key, name))
}

/// A visitor for the document; `None` if a list has a wrong form.
struct Document;

impl<'de> Visitor<'de> for Document {
    type Value = Option<(Json, Lists)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut entries, mut lists, mut good) = (Vec::new(), [None, None], true);
        while let Some(key) = map.next_key::<String>()? {
            match number(&key).and_then(|list| lists.get_mut(list)) {
                Some(list) => match map.next_value_seed(List)? {
                    Some(read) if list.is_none() => *list = Some(read),
                    _ => good = false,
                },
                None => entries.push((key, map.next_value()?)),
            }
        }
        let [valid_attachments, attachments] = lists.map(Option::flatten);
        Ok(good.then_some((Json::Object(entries), Lists { valid_attachments, attachments })))
    }
}

/// Reads a value of another kind to its end; it is no error of the document.
macro_rules! not_wanted {
    ($($visit:ident: $kind:ty),*) => {
        $(fn $visit<E>(self, _: $kind) -> Result<Self::Value, E> {
            Ok(None)
        })*
    };
    (map) => {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(None)
        }
    };
    (seq) => {
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok(None)
        }
    };
}

/// A visitor for a list; `null` counts as an absent list.
#[derive(Clone, Copy)]
struct List;

impl<'de> Visitor<'de> for List {
    type Value = Option<Option<Vec<Attachment>>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Some(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let (mut list, mut good) = (Vec::new(), true);
        while let Some(entry) = seq.next_element_seed(Entry)? {
            match entry {
                Some(entry) => list.push(entry),
                None => good = false,
            }
        }
        Ok(good.then_some(Some(list)))
    }

    not_wanted!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);
    not_wanted!(map);
}

/// A visitor for an attachment; unknown keys are ignored.
#[derive(Clone, Copy)]
struct Entry;

impl<'de> Visitor<'de> for Entry {
    type Value = Option<Attachment>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an attachment")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut read, mut good) = (Attachment { container_id: String::new(), ifname: String::new() }, true);
        while let Some(key) = map.next_key_seed(KeySeed)? {
            let place = match key {
                Key::ContainerId => &mut read.container_id,
                Key::Ifname => &mut read.ifname,
                Key::Unknown => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            good &= map.next_value_seed(Text { place })?.is_some();
        }
        Ok(good.then_some(read))
    }

    not_wanted!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);
    not_wanted!(seq);

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// A visitor that stores a text. `null` changes nothing, as in Go.
struct Text<'a> {
    place: &'a mut String,
}

impl<'de> Visitor<'de> for Text<'_> {
    type Value = Option<()>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        text.clone_into(self.place);
        Ok(Some(()))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Some(()))
    }

    not_wanted!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);
    not_wanted!(seq);
    not_wanted!(map);
}

enum Key {
    ContainerId,
    Ifname,
    Unknown,
}

struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Key, E> {
        Ok(match key {
            key if same_name(key, "containerID") => Key::ContainerId,
            key if same_name(key, "ifname") => Key::Ifname,
            _ => Key::Unknown,
        })
    }
}

/// Makes a type accept a value of any kind.
macro_rules! seed {
    ($($name:ty),*) => {
        $(impl<'de> DeserializeSeed<'de> for $name {
            type Value = <Self as Visitor<'de>>::Value;

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
                deserializer.deserialize_any(self)
            }
        })*
    };
}

seed!(List, Entry, Text<'_>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NetConf;

    fn parse(text: &str) -> Result<Json, Error> {
        Json::parse_without_lists(text.as_bytes(), 1000)
    }

    #[test]
    fn good_lists_are_left_out() {
        let rest = Json::parse(br#"{"name":"n","x":[1,{"ifname":2}]}"#, 100).unwrap();
        for list in [
            "[]",
            "null",
            r#"[{"containerID":"a","ifname":"b"}]"#,
            r#"[{"CONTAINERID":"a","other":[{}],"ifname":null},{}]"#,
            r#"[{"ifname":"a","IFNAME":null},{"ifname":"a","ifName":"b"}]"#,
        ] {
            for key in ["cni.dev/valid-attachments", "cni.dev/attachments", "CNI.dev/Attachments"] {
                let text = format!(r#" {{"name":"n","{key}":{list},"x":[1,{{"ifname":2}}]}} "#);
                assert_eq!(parse(&text).unwrap(), rest, "{text}");
                // With the lists put back, the result is the same as that of the complete tree.
                let (json, lists) = parse_with_lists(text.as_bytes(), 1000).unwrap();
                assert_eq!(json, rest);
                let tree = NetConf::parse(Json::parse(text.as_bytes(), 1000).unwrap()).unwrap();
                let apart = NetConf::parse(json).unwrap().with_lists(lists);
                assert_eq!(NetConf { raw: Json::Null, ..apart }, NetConf { raw: Json::Null, ..tree }, "{text}");
            }
        }
    }

    #[test]
    fn bad_lists_stay_in_the_tree_for_their_error() {
        for list in [
            "{}",
            "1",
            "true",
            r#""a""#,
            "[1]",
            "[null]",
            r#"[],"cni.dev/attachments":3"#,
            "[[]]",
            r#"[{"ifname":1}]"#,
            r#"[{"containerID":[]}]"#,
        ] {
            let text = format!(r#"{{"name":"n","{}":{list}}}"#, "cni.dev/attachments");
            let (json, lists) = parse_with_lists(text.as_bytes(), 1000).unwrap();
            assert_eq!((json, lists), (Json::parse(text.as_bytes(), 1000).unwrap(), Lists::default()));
            assert!(NetConf::parse(Json::parse(text.as_bytes(), 1000).unwrap()).is_err(), "{text}");
            // A plugin skips the lists, because its host has reported errors in them.
            assert_eq!(parse(&text).unwrap(), Json::parse(br#"{"name":"n"}"#, 100).unwrap());
        }
    }

    #[test]
    fn all_else_is_as_parsed() {
        for text in
            ["", "null", "[]", "{", "{} x", r#"{"a":1e999}"#, r#"{"cni.dev/attachments":[}"#, r#"{"a":"\ud800"}"#]
        {
            assert_eq!(parse(text), Json::parse(text.as_bytes(), 1000), "{text}");
            assert_eq!(parse_with_lists(text.as_bytes(), 1000).map(|(json, _)| json), parse(text), "{text}");
        }
        assert_eq!(Json::parse_without_lists(b"{}", 1).unwrap_err(), Json::parse(b"{}", 1).unwrap_err());
    }
}
