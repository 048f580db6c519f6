//! GC's lists of valid attachments. The lists may have thousands of entries, and most code does not need them. So the
//! host keeps the lists beside the configuration, and a plugin skips them.

use crate::conf::{STRUCTURE, ValidAttachment, attachments};
use crate::error::Error;
use crate::fields::same_name;
use crate::json::Json;

/// The keys of the lists.
pub(crate) const KEYS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];

/// The lists, under the keys that [`NetConf`](crate::NetConf) names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// `cni.dev/valid-attachments`.
    pub valid_attachments: Option<Vec<ValidAttachment>>,
    /// `cni.dev/attachments`.
    pub attachments: Option<Vec<ValidAttachment>>,
}

impl Lists {
    /// Reads the lists of a configuration.
    pub(crate) fn of(conf: &Json) -> Result<Self, Error> {
        let fields = conf.fields(STRUCTURE)?;
        let [valid_attachments, attachments] = KEYS.map(|key| attachments(&fields, key));
        Ok(Self { valid_attachments: valid_attachments?, attachments: attachments? })
    }
}

/// Parses as [`Json::parse`], but returns the lists separately. If one list has a wrong form, both lists stay in the
/// tree, and the code that reads the tree reports the error.
///
/// # Errors
/// The errors of [`Json::parse`].
pub fn parse_with_lists(bytes: &[u8], limit: usize) -> Result<(Json, Lists), Error> {
    let mut json = Json::parse(bytes, limit)?;
    let Ok(lists) = Lists::of(&json) else { return Ok((json, Lists::default())) };
    if let Json::Object(entries) = &mut json {
        entries.retain(|(key, _)| !is_list(key));
    }
    Ok((json, lists))
}

/// True for the key of a list.
pub(crate) fn is_list(key: &str) -> bool {
    KEYS.iter().any(|name| same_name(key, name))
}

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
                // With the lists put back, the configuration is the same as from the complete tree.
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
            // A plugin skips the lists: the host has already reported the lists' errors.
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
