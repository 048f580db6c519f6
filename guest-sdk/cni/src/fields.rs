//! A reader for the fields of a structure, with the rules of Go's decoder.
//!
//! Each key, in the order of the document, sets the field of the same name; case doesn't matter. So the last of several
//! spellings wins, even over the exact spelling. Two objects for one field are merged. `null` leaves a scalar or an
//! object as it is, and empties a list or a map.
//!
//! Host, guests and native plugins get the same bytes and must read the same configuration. So the code follows these
//! rules exactly. [`Fields::spellings`] shows repeated keys, because they matter to policy.

use crate::address::{parse_cidr, parse_ip};
use crate::error::Error;
use crate::json::Json;
use ipnet::IpNet;
use serde_json::Number;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The members of an object, read as fields of a structure. All readers return `None` for an absent field, and an error
/// of code 999 for a field of the wrong type.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    structure: &'static str,
    path: String,
    entries: Vec<(&'a str, &'a Json)>,
}

impl<'a> Fields<'a> {
    /// Returns fields without members, for an absent object.
    pub(crate) fn none(structure: &'static str) -> Fields<'a> {
        Fields { structure, path: String::new(), entries: Vec::new() }
    }

    /// Adds the members of an object, or nothing for `null`. Returns `false` for every other value.
    fn merge(&mut self, json: &'a Json) -> bool {
        match json {
            Json::Null => true,
            Json::Object(entries) => {
                self.entries.extend(entries.iter().map(|(key, value)| (key.as_str(), value)));
                true
            }
            _ => false,
        }
    }

    fn child(&self, name: &str) -> Fields<'a> {
        Fields { structure: self.structure, path: self.path_to(name), entries: Vec::new() }
    }

    fn path_to(&self, name: &str) -> String {
        match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }

    /// Returns the values for the field `name`. No structure has two fields that differ only in case, so an exact match
    /// needs no precedence.
    fn named<'n>(&self, name: &'n str) -> impl Iterator<Item = (&'a str, &'a Json)> + use<'_, 'a, 'n> {
        #[cfg(feature = "recorder")]
        crate::recorder::note(self.structure, || self.path_to(name));
        self.entries.iter().copied().filter(move |(key, _)| same_name(key, name))
    }

    /// Returns the final value of the field `name` as JSON; `null` counts as absent. Objects are not merged.
    pub fn get(&self, name: &str) -> Option<&'a Json> {
        self.named(name).last().map(|(_, value)| value).filter(|value| !value.is_null())
    }

    /// Returns every key that was given for the field `name`, as spelt and in the order of the document. More than one
    /// key means that the document sets the field more than once, in one spelling or in several.
    pub fn spellings(&self, name: &str) -> Vec<&'a str> {
        self.named(name).map(|(key, _)| key).collect()
    }

    /// Returns all members with their keys as spelt, in the order of the document.
    pub fn entries(&self) -> &[(&'a str, &'a Json)] {
        &self.entries
    }

    /// Makes the error for a value that the field `name` can't take. `wanted` is a type of Go.
    pub fn mismatch(&self, name: &str, found: &Json, wanted: &str) -> Error {
        let (structure, path) = (self.structure, self.path_to(name));
        let found = match found {
            // The number is quoted only if the field takes numbers.
            Json::Number(number) if matches!(wanted, "int" | "uint" | "uint32" | "uint64") => {
                format!("number {number}")
            }
            other => other.kind().to_owned(),
        };
        Error::internal(format!(
            "json: cannot unmarshal {found} into Go struct field {structure}.{path} of type {wanted}"
        ))
    }

    fn scalar<T>(&self, name: &str, wanted: &str, read: impl Fn(&'a Json) -> Option<T>) -> Result<Option<T>, Error> {
        let mut value = None;
        for (_, json) in self.named(name).filter(|(_, json)| !json.is_null()) {
            value = Some(read(json).ok_or_else(|| self.mismatch(name, json, wanted))?);
        }
        Ok(value)
    }

    /// Reads a boolean; 1 and "true" are errors.
    pub fn bool(&self, name: &str) -> Result<Option<bool>, Error> {
        self.scalar(name, "bool", |json| match json {
            Json::Bool(value) => Some(*value),
            _ => None,
        })
    }

    /// Reads a whole number.
    pub fn int(&self, name: &str) -> Result<Option<i64>, Error> {
        self.scalar(name, "int", |json| json.number()?.as_i64())
    }

    /// Reads a whole number of 0 or more.
    pub fn uint(&self, name: &str) -> Result<Option<u64>, Error> {
        self.scalar(name, "uint", |json| json.number()?.as_u64())
    }

    /// Reads a whole number of 0 or more. Errors name the type `uint64`, as in some native plugins.
    pub fn uint64(&self, name: &str) -> Result<Option<u64>, Error> {
        self.scalar(name, "uint64", |json| json.number()?.as_u64())
    }

    /// Reads a whole number of 0 or more that fits 32 bits.
    pub fn uint32(&self, name: &str) -> Result<Option<u32>, Error> {
        self.scalar(name, "uint32", |json| json.number()?.as_u64()?.try_into().ok())
    }

    /// Reads a text.
    pub fn string(&self, name: &str) -> Result<Option<String>, Error> {
        Ok(self.str(name)?.map(str::to_owned))
    }

    /// Reads a text as a reference.
    pub fn str(&self, name: &str) -> Result<Option<&'a str>, Error> {
        self.scalar(name, "string", |json| match json {
            Json::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Reads an IP address; an empty text counts as absent. IPv4-mapped addresses become IPv4 addresses.
    pub fn ip(&self, name: &str) -> Result<Option<IpAddr>, Error> {
        self.str(name)?.filter(|text| !text.is_empty()).map(parse_ip).transpose()
    }

    /// Reads an address with prefix length; host bits are kept.
    pub fn cidr(&self, name: &str) -> Result<Option<IpNet>, Error> {
        self.str(name)?.map(parse_cidr).transpose()
    }

    /// Reads a list. An absent list and an empty list differ.
    pub fn list(&self, name: &str) -> Result<Option<&'a [Json]>, Error> {
        let mut value = None;
        for (_, json) in self.named(name) {
            value = match json {
                Json::Null => None,
                Json::Array(items) => Some(items.as_slice()),
                other => return Err(self.mismatch(name, other, "[]interface {}")),
            };
        }
        Ok(value)
    }

    /// Reads a list of texts; a `null` entry becomes an empty text.
    pub fn strings(&self, name: &str) -> Result<Option<Vec<String>>, Error> {
        let Some(items) = self.list(name)? else { return Ok(None) };
        let read = |item: &Json| match item {
            Json::String(text) => Ok(text.clone()),
            Json::Null => Ok(String::new()),
            other => Err(self.mismatch(name, other, "string")),
        };
        items.iter().map(read).collect::<Result<_, _>>().map(Some)
    }

    /// Reads an object whose keys are fields.
    pub fn object(&self, name: &str) -> Result<Option<Fields<'a>>, Error> {
        let mut child = None;
        for (_, json) in self.named(name).filter(|(_, json)| !json.is_null()) {
            if !child.get_or_insert_with(|| self.child(name)).merge(json) {
                return Err(self.mismatch(name, json, "struct"));
            }
        }
        Ok(child)
    }

    /// Reads a list of objects whose keys are fields. A `null` entry is an error, because native plugins crash on it.
    pub fn objects(&self, name: &str) -> Result<Option<Vec<Fields<'a>>>, Error> {
        let Some(items) = self.list(name)? else { return Ok(None) };
        let read = |item| self.entry(name, item)?.ok_or_else(|| self.mismatch(name, item, "struct"));
        items.iter().map(read).collect::<Result<_, _>>().map(Some)
    }

    /// Reads a list of objects of a result. A `null` entry becomes `None`, and an absent list has no entries.
    pub fn entries_or_null(&self, name: &str) -> Result<Vec<Option<Fields<'a>>>, Error> {
        self.list(name)?.unwrap_or_default().iter().map(|item| self.entry(name, item)).collect()
    }

    /// Reads an entry of the list `name`, an object whose keys are fields; `None` for `null`.
    fn entry(&self, name: &str, item: &'a Json) -> Result<Option<Fields<'a>>, Error> {
        let mut child = self.child(name);
        match child.merge(item) {
            true => Ok((!item.is_null()).then_some(child)),
            false => Err(self.mismatch(name, item, "struct")),
        }
    }

    /// Reads a map, such as `sysctl`. Case matters in its keys, and the last of equal keys is kept.
    pub fn map(&self, name: &str) -> Result<Option<BTreeMap<&'a str, &'a Json>>, Error> {
        let mut map: Option<BTreeMap<_, _>> = None;
        for (_, json) in self.named(name) {
            match json {
                Json::Null => map = None,
                Json::Object(entries) => {
                    let entries = entries.iter().map(|(key, value)| (key.as_str(), value));
                    map.get_or_insert_default().extend(entries);
                }
                other => return Err(self.mismatch(name, other, "map[string]interface {}")),
            }
        }
        Ok(map)
    }
}

/// True if `key` is a spelling of `name`, which is ASCII. Two other letters count as equal to ASCII letters: the long s
/// and the Kelvin sign.
pub(crate) fn same_name(key: &str, name: &str) -> bool {
    // Both letters have more bytes than their ASCII letters. So a spelling with the length of `name` contains neither.
    if key.len() <= name.len() || key.is_ascii() {
        return key.eq_ignore_ascii_case(name);
    }
    let fold = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    key.chars().map(fold).eq(name.chars().map(fold))
}

impl Json {
    /// Returns the members as fields of a structure. `structure` is the structure's name in messages. `null` has no
    /// fields.
    ///
    /// # Errors
    /// Code 999 if this value is neither an object nor `null`.
    pub fn fields<'a>(&'a self, structure: &'static str) -> Result<Fields<'a>, Error> {
        let mut fields = Fields::none(structure);
        match fields.merge(self) {
            true => Ok(fields),
            false => Err(self.undecodable(structure)),
        }
    }

    /// Makes the error for a value that does not have Go's type `wanted`.
    pub(crate) fn undecodable(&self, wanted: &str) -> Error {
        Error::internal(format!("json: cannot unmarshal {} into Go value of type {wanted}", self.kind()))
    }

    fn number(&self) -> Option<&Number> {
        if let Json::Number(number) = self { Some(number) } else { None }
    }

    /// Returns every member of an object that sets the field `name`, as spelt and in the order of the document. A value
    /// of another kind has no members.
    pub fn members<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = (&'a str, &'a Json)> + use<'a, 'n> {
        let entries = if let Json::Object(entries) = self { entries.as_slice() } else { &[] };
        entries.iter().filter(move |(key, _)| same_name(key, name)).map(|(key, value)| (key.as_str(), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(text: &str, read: impl FnOnce(Fields<'_>) -> T) -> T {
        let json = Json::parse(text.as_bytes(), 10_000).unwrap();
        read(json.fields("NetConf").unwrap())
    }

    #[test]
    fn members_are_all_spellings_in_their_order() {
        let json =
            Json::parse("{\"kind\":1,\"\u{212a}IND\":2,\"kinds\":3,\"Kin\u{e9}\":4,\"KIND\":null}".as_bytes(), 1000)
                .unwrap();
        let spelt: Vec<(&str, bool)> = json.members("kind").map(|(key, value)| (key, value.is_null())).collect();
        assert_eq!(spelt, [("kind", false), ("\u{212a}IND", false), ("KIND", true)]);
        assert_eq!(Json::from("kind").members("kind").count(), 0);
    }

    #[test]
    fn the_last_spelling_wins() {
        with(r#"{"bridge":"x1","Bridge":"x2","BRIDGE":"x3","bridges":"x4"}"#, |fields| {
            assert_eq!(fields.string("bridge").unwrap().unwrap(), "x3");
            assert_eq!(fields.get("bridge"), Some(&Json::from("x3")));
            assert_eq!(fields.spellings("bridge"), ["bridge", "Bridge", "BRIDGE"]);
            assert_eq!(fields.spellings("ipam"), [""; 0]);
        });
        with(r#"{"i\u017fGateway":true}"#, |fields| assert_eq!(fields.bool("isGateway").unwrap(), Some(true)));
        with(r#"{"\u212aind":1}"#, |fields| assert_eq!(fields.int("kind").unwrap(), Some(1)));
        with(r#"{"İsGateway":1, "is_gateway":1}"#, |fields| assert_eq!(fields.bool("isGateway").unwrap(), None));
    }

    #[test]
    fn null_leaves_scalars_and_empties_lists() {
        with(r#"{"a":"x","A":null,"l":[1],"L":null,"m":{"k":1},"M":null,"n":null}"#, |fields| {
            assert_eq!(fields.string("a").unwrap().unwrap(), "x");
            assert_eq!(fields.list("l").unwrap(), None);
            assert_eq!(fields.map("m").unwrap(), None);
            assert_eq!((fields.bool("n").unwrap(), fields.get("n")), (None, None));
            assert!(fields.object("n").unwrap().is_none());
        });
    }

    #[test]
    fn objects_are_merged_and_maps_verbatim() {
        with(r#"{"ipam":{"type":"a","x":1},"IPAM":{"TYPE":"b"},"sysctl":{"a.B":"1","a.b":"2","a.b":"3"}}"#, |fields| {
            let ipam = fields.object("ipam").unwrap().unwrap();
            assert_eq!(ipam.string("type").unwrap().unwrap(), "b");
            assert_eq!(ipam.uint("x").unwrap(), Some(1));
            assert_eq!(ipam.spellings("type"), ["type", "TYPE"]);
            let sysctl = fields.map("sysctl").unwrap().unwrap();
            assert_eq!(sysctl, BTreeMap::from([("a.B", &Json::from("1")), ("a.b", &Json::from("3"))]));
        });
    }

    #[test]
    fn wrong_types_are_named_as_go_names_them() {
        let check = |text: &str, read: fn(Fields<'_>) -> Result<(), Error>, message: &str| {
            let error = with(text, read).unwrap_err();
            assert_eq!(error.code, 999);
            assert_eq!(error.msg, format!("json: cannot unmarshal {message}"));
        };
        let bool = |fields: Fields<'_>| fields.bool("isGateway").map(drop);
        check(r#"{"isGateway":"true"}"#, bool, "string into Go struct field NetConf.isGateway of type bool");
        check(r#"{"ISGATEWAY":1}"#, bool, "number into Go struct field NetConf.isGateway of type bool");
        // An earlier spelling is decoded too, and its errors count.
        check(
            r#"{"isgateway":[],"isGateway":true}"#,
            bool,
            "array into Go struct field NetConf.isGateway of type bool",
        );
        let int = |fields: Fields<'_>| fields.int("mtu").map(drop);
        check(r#"{"mtu":1.5}"#, int, "number 1.5 into Go struct field NetConf.mtu of type int");
        check(r#"{"mtu":"1"}"#, int, "string into Go struct field NetConf.mtu of type int");
        check(
            r#"{"mtu":9223372036854775808}"#,
            int,
            "number 9223372036854775808 into Go struct field NetConf.mtu of type int",
        );
        let uint = |fields: Fields<'_>| fields.uint("mtu").map(drop);
        check(r#"{"mtu":-1}"#, uint, "number -1 into Go struct field NetConf.mtu of type uint");
        let nested = |fields: Fields<'_>| fields.object("ipam")?.unwrap().string("type").map(drop);
        check(r#"{"ipam":{"type":1}}"#, nested, "number into Go struct field NetConf.ipam.type of type string");
        check(r#"{"ipam":"x"}"#, nested, "string into Go struct field NetConf.ipam of type struct");
        let strings = |fields: Fields<'_>| fields.strings("l").map(drop);
        check(r#"{"l":["a",1]}"#, strings, "number into Go struct field NetConf.l of type string");
        let objects = |fields: Fields<'_>| fields.objects("l").map(drop);
        check(r#"{"l":[null]}"#, objects, "null into Go struct field NetConf.l of type struct");
        let error = Json::Array(vec![]).fields("NetConf").unwrap_err();
        assert_eq!(error.msg, "json: cannot unmarshal array into Go value of type NetConf");
    }

    #[test]
    fn addresses() {
        with(r#"{"gw":"","ip":"::ffff:1.2.3.4","net":"10.1.2.3/8","bad":"x"}"#, |fields| {
            assert_eq!(fields.ip("gw").unwrap(), None);
            assert_eq!(fields.ip("ip").unwrap(), Some("1.2.3.4".parse().unwrap()));
            assert_eq!(fields.cidr("net").unwrap(), Some("10.1.2.3/8".parse().unwrap()));
            assert_eq!(fields.ip("bad").unwrap_err().msg, "invalid IP address: x");
            assert_eq!(fields.cidr("bad").unwrap_err().msg, "invalid CIDR address: x");
        });
    }
}
