//! A policy file: TOML as input, checked grants as output.

use super::error::FileError;
use super::grammar::{self, Count, Key, TableName, ValueKind};
use super::limits::Limits;
use super::template::Template;
use super::view::{Collector, GrantView, Origin};
use crate::prelude::*;
use alloc::collections::BTreeMap;
use core::fmt::{Display, from_fn};
use postern_cni::Version;
use postern_types::Capability;
use toml::{Table, Value};

/// A policy file that was read.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// The digest that the component must have, in hexadecimal digits.
    pub digest: Option<String>,
    pub versions: Option<Vec<String>>,
    /// The collector of the garbage of the plugin's attachments.
    pub gc: Option<Collector>,
    /// The capabilities that the file takes away.
    pub withdraw: Vec<Capability>,
    /// The capabilities that the operator's file takes away.
    pub operator_withdraws: Vec<Capability>,
    pub limits: Limits,
    /// The tables that grant something.
    pub tables: BTreeMap<TableName, GrantTable>,
    /// The tables of capabilities that are taken away.
    pub withdrawn: BTreeMap<TableName, GrantTable>,
}

/// A table with a grant.
#[derive(Clone, Debug)]
pub struct GrantTable {
    /// The name of the table, as in [`GrantView::name`].
    pub name: &'static str,
    /// The file with this table.
    pub from: Origin,
    /// The keys that are set.
    pub keys: Vec<(Key, Vec<Template>)>,
}

impl GrantTable {
    /// True if a key has this text, before any value is filled in.
    pub fn says(&self, key: &str, text: &str) -> bool {
        let values = self.keys.iter().filter(|(name, _)| name.name == key).flat_map(|(_, values)| values);
        values.into_iter().any(|value| value.text() == text)
    }

    /// Returns the table as the file has it.
    pub fn view(&self) -> GrantView {
        let texts = |templates: &[Template]| templates.iter().map(|template| template.text().to_owned()).collect();
        let objects = self.keys.iter().map(|(key, templates)| (key.name, texts(templates))).collect();
        GrantView { name: self.name, from: self.from, objects }
    }
}

const TOP: [&str; 8] = ["digest", "versions", "gc", "withdraw", "limits", "grant", "result", "previous"];

impl File {
    /// Reads a text. The error has the fault, its table and key, and the possible values.
    pub fn parse(text: &str, from: Origin) -> Result<Self, FileError> {
        let tables = toml::from_str(text).map_err(|e| FileError::Toml(e.to_string().trim_end().to_owned()))?;
        Self::of(tables, from)
    }

    /// As [`File::parse`], for tables that were already parsed.
    pub fn of(tables: Table, from: Origin) -> Result<Self, FileError> {
        let mut file = Self::default();
        for (key, value) in tables {
            match key.as_str() {
                "digest" => file.digest = Some(digest(&string(&"digest", &value)?)?),
                "versions" => file.versions = Some(versions(&value)?),
                "gc" => {
                    let text = string(&"gc", &value)?;
                    file.gc = Some(Collector::parse(&text).ok_or(FileError::Collector(text))?);
                }
                "withdraw" => {
                    file.withdraw = withdraw(&value)?;
                    if from == Origin::Operator {
                        file.operator_withdraws.clone_from(&file.withdraw);
                    }
                }
                "limits" => file.limits = limits(value)?,
                "grant" => file.tables.extend(grants(&value, from)?),
                "result" => file.tables.extend([grant(TableName::Result, &value, from)?]),
                "previous" => file.tables.extend([grant(TableName::Previous, &value, from)?]),
                _ => return Err(unknown("the file", &key, &TOP)),
            }
        }
        Ok(file)
    }

    /// Applies an operator's file to a shipped file. Whole tables and single limits are replaced. `withdraw` adds to
    /// the shipped list.
    pub fn replace_with(&mut self, operator: Self) {
        self.digest = operator.digest.or(self.digest.take());
        self.versions = operator.versions.or(self.versions.take());
        self.gc = operator.gc.or(self.gc);
        self.withdraw.extend(operator.withdraw);
        self.operator_withdraws.extend(operator.operator_withdraws);
        self.limits.replace_with(&operator.limits);
        self.tables.extend(operator.tables);
    }

    /// Returns a table, even if its capability is taken away.
    pub fn table(&self, table: TableName) -> Option<&GrantTable> {
        self.tables.get(&table).or_else(|| self.withdrawn.get(&table))
    }

    /// Removes the grants of the capabilities in `withdraw`.
    pub fn withhold(&mut self) {
        let is_withdrawn = |table| matches!(table, TableName::Grant(of) if self.withdraw.contains(&of));
        let tables = core::mem::take(&mut self.tables).into_iter();
        (self.withdrawn, self.tables) = tables.partition(|(table, _)| is_withdrawn(*table));
    }
}

fn unknown(place: &str, key: &str, possible: &[&'static str]) -> FileError {
    FileError::Unknown { place: place.to_owned(), key: key.to_owned(), possible: possible.to_vec() }
}

/// The name of a place is built only here, because only an error needs it.
fn is_not(place: &dyn Display, wanted: &'static str, value: &Value) -> FileError {
    FileError::Type { place: place.to_string(), wanted, found: article(value) }
}

fn string(place: &dyn Display, value: &Value) -> Result<String, FileError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(is_not(place, "a text in quotation marks", other)),
    }
}

fn strings(place: &dyn Display, value: &Value) -> Result<Vec<String>, FileError> {
    match value {
        Value::Array(items) => items.iter().map(|item| string(place, item)).collect(),
        other => Err(is_not(place, "a list, [\"…\"]", other)),
    }
}

fn article(value: &Value) -> String {
    let kind = value.type_str();
    format!("{} {kind}", if kind.starts_with(['a', 'i']) { "an" } else { "a" })
}

fn table<'t>(place: &dyn Display, value: &'t Value) -> Result<&'t Table, FileError> {
    value.as_table().ok_or_else(|| is_not(place, "a table", value))
}

fn digest(text: &str) -> Result<String, FileError> {
    let hex = text.strip_prefix("sha256:").filter(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()));
    let hex = hex.ok_or_else(|| FileError::Digest(text.to_owned()))?;
    Ok(hex.to_ascii_lowercase())
}

/// Returns the versions of CNI that a policy names.
pub(crate) fn versions(value: &Value) -> Result<Vec<String>, FileError> {
    let versions = strings(&"versions", value)?;
    if versions.is_empty() {
        return Err(FileError::NoVersions);
    }
    match versions.iter().find(|text| Version::parse(text).is_none()) {
        Some(text) => Err(FileError::Version { text: text.clone() }),
        None => Ok(versions),
    }
}

fn withdraw(value: &Value) -> Result<Vec<Capability>, FileError> {
    let known = |name: &String| Capability::parse(name).ok_or_else(|| FileError::Capability { name: name.clone() });
    strings(&"withdraw", value)?.iter().map(known).collect()
}

fn limits(value: Value) -> Result<Limits, FileError> {
    table(&"[limits]", &value)?;
    let limits: Limits = value.try_into().map_err(|e| FileError::Limits(e.to_string().trim_end().to_owned()))?;
    limits.check()?;
    Ok(limits)
}

fn grants(value: &Value, from: Origin) -> Result<Vec<(TableName, GrantTable)>, FileError> {
    let mut granted = BTreeMap::new();
    for (name, value) in table(&"grant", value)? {
        let unknown = || unknown("[grant]", name, &grammar::names());
        granted.insert(Capability::parse(name).ok_or_else(unknown)?, value);
    }
    // If there are several faults, the first fault in the order of the capabilities is reported.
    granted.into_iter().map(|(capability, value)| grant(TableName::Grant(capability), value, from)).collect()
}

fn grant(name: TableName, value: &Value, from: Origin) -> Result<(TableName, GrantTable), FileError> {
    let place = from_fn(|f| write!(f, "[{name}]"));
    let (table, keys) = (table(&place, value)?, name.keys());
    // Each key that the table can have, with its value.
    let mut said: Vec<(&Key, Option<&Value>)> = keys.iter().map(|key| (key, None)).collect();
    for (written, value) in table {
        match said.iter_mut().find(|(key, _)| key.name == written.as_str()) {
            Some((_, said)) => *said = Some(value),
            None => {
                let possible: Vec<_> = keys.iter().map(|key| key.name).collect();
                return Err(unknown(&place.to_string(), written, &possible));
            }
        }
    }
    let mut set = Vec::new();
    for (key, value) in said {
        let place = from_fn(|f| write!(f, "{place} {}", key.name));
        match value {
            Some(value) => set.push((*key, templates(&place, key, value)?)),
            None if key.is_required() => return Err(FileError::Missing(place.to_string())),
            None => {}
        }
    }
    Ok((name, GrantTable { name: name.name(), from, keys: set }))
}

fn templates(place: &dyn Display, key: &Key, value: &Value) -> Result<Vec<Template>, FileError> {
    let texts = match key.count {
        Count::One => vec![string(place, value)?],
        Count::Some | Count::Any => strings(place, value)?,
    };
    if texts.is_empty() && key.count == Count::Some {
        return Err(FileError::Empty(place.to_string()));
    }
    texts
        .iter()
        .map(|text| {
            let parsed =
                if key.kind == ValueKind::Gateway { Template::parse_gateway(text) } else { Template::parse(text) };
            let checked = parsed.and_then(|template| key.kind.check(&template).map(|()| template));
            checked.map_err(|error| FileError::Value { place: place.to_string(), error })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        File::parse(text, Origin::Shipped).unwrap_err().to_string()
    }

    #[test]
    fn every_mistake_names_its_key_and_what_is_possible() {
        for (text, words) in [
            (
                "grants = 1",
                ["the file: unknown field `grants`", "`digest`, `versions`, `gc`, `withdraw`, `limits`, `grant`"],
            ),
            ("[grant.netlink]", ["unknown field `netlink`, expected one of `link`, `veth`", "`attachments`"]),
            ("[grant.veth]\nname = \"x\"", ["[grant.veth]: unknown field `name`", "`mtu`, `look-only`, `when`"]),
            ("[grant.leases]\nfiles = []", ["[grant.leases]: unknown field `files`", "`directories`, `ranges`"]),
            ("[grant.resolv-conf]\nfile = []", ["[grant.resolv-conf]: unknown field `file`", "`files`, `when`"]),
            ("[result]\nips = []", ["[result]: unknown field `ips`", "`addresses`, `gateways`"]),
            ("[previous]\nlinks = []", ["[previous]: unknown field `links`", "`addresses`, `names`, `in-container`"]),
            (
                "[previous]\nin-container = true",
                ["[previous] in-container", "a text in quotation marks, not a boolean"],
            ),
            (
                "[previous]\nin-container = \"yes\"",
                ["[previous] in-container: \"yes\" is no flag", "\"true\" or \"false\""],
            ),
            ("[previous]\nnames = [\"a/b\"]", ["[previous] names: \"a/b\" is no name of a link", "15 bytes"]),
            ("[previous]\nnames = []", ["[previous] names: the list is empty", "name something"]),
            ("[limits]\nminutes = 1", ["[limits]: unknown field `minutes`", "expected one of"]),
            ("[limits]\ndepth = 9", ["[limits] depth = 9", "it can be 0 to 8"]),
            ("limits = 1", ["[limits]", "must be a table, not an integer"]),
            ("withdraw = [\"nat\"]", ["withdraw: \"nat\" is no capability", "the capabilities are link, veth"]),
            ("versions = [\"3.0\"]", ["versions: \"3.0\" is no version of CNI", "\"1.1.0\""]),
            ("versions = []", ["versions: the list is empty", "\"1.1.0\""]),
            ("digest = \"md5:1\"", ["digest: \"md5:1\" is no digest", "\"sha256:\" and 64 hexadecimal digits"]),
            ("digest = \"sha256:12\"", ["digest: \"sha256:12\"", "64 hexadecimal digits"]),
            ("gc = \"nobody\"", ["gc: \"nobody\" is no collector", "\"host\" or \"guest\""]),
            ("gc = true", ["gc: it must be a text", "not a boolean"]),
            ("digest = 1", ["digest", "a text in quotation marks, not an integer"]),
            ("[grant.bridge]", ["[grant.bridge] names: the key is missing", "nothing is granted"]),
            ("[grant.bridge]\nnames = []", ["[grant.bridge] names: the list is empty", "name something"]),
            ("[grant.bridge]\nnames = \"x\"", ["[grant.bridge] names: it must be a list", "not a string"]),
            ("[grant.bridge]\nnames = [1]", ["[grant.bridge] names: it must be a text", "not an integer"]),
            ("[grant.bridge]\nnames = [\"a/b\"]", ["[grant.bridge] names: \"a/b\" is no name of a link", "15 bytes"]),
            (
                "[grant.bridge]\nnames = [\"b\"]\nvlan = \"4095\"",
                ["[grant.bridge] vlan: \"4095\" is no VLAN", "\"4094\""],
            ),
            ("[grant.bridge]\nnames = [\"b\"]\nvlan = 5", ["[grant.bridge] vlan: it must be a text", "not an integer"]),
            (
                "[grant.bridge]\nnames = [\"b\"]\npromisc = \"on\"",
                ["promisc: \"on\" is no flag", "\"true\" or \"false\""],
            ),
            ("[grant.masquerade]", ["[grant.masquerade] backends: the key is missing", "nothing is granted"]),
            (
                "[grant.masquerade]\nbackends = [\"pf\"]",
                ["backends: \"pf\" is no backend", "\"nftables\", \"iptables\" or \"any\""],
            ),
            ("[grant.ipam]\ntypes = [\"../sh\"]", ["[grant.ipam] types: \"../sh\"", "can't have a `/`"]),
            ("[grant.ipam]\ntypes = [\"x\"]\nnative = [\".x\"]", ["[grant.ipam] native: \".x\"", "begin with a `.`"]),
            (
                "[grant.leases]\ndirectories = [\"/x\"]",
                ["[grant.leases] ranges: the key is missing", "nothing is granted"],
            ),
            (
                "[grant.leases]\nranges = [\"10.0.0.0/8\"]\ndirectories = [\"x\"]",
                ["[grant.leases] directories: \"x\" is no absolute directory", "\"/PATH\""],
            ),
            (
                "[grant.leases]\nranges = [\"10.0.0.0\"]\ndirectories = [\"/x\"]",
                ["[grant.leases] ranges: \"10.0.0.0\" is no network", "a CIDR without host bits"],
            ),
            ("[grant.resolv-conf]\nfiles = [\"x\"]", ["[grant.resolv-conf] files: \"x\"", "\"/PATH/FILE\""]),
            ("[grant.resolv-conf]\nfiles = [\"${x}\"]", ["[grant.resolv-conf] files: `${x}`", "`${config.KEY}`"]),
            ("[result]\naddresses = [\"10.0.0.1\"]", ["[result] addresses: \"10.0.0.1\" is no address", "a CIDR"]),
            ("[result]\ngateways = []", ["[result] gateways: the list is empty", "name something"]),
            ("[grant.bridge]\nnames = [\"${config.a.*}${config.b.*}\"]", ["[grant.bridge] names", "different lists"]),
            ("grant =", ["TOML parse error", "line 1"]),
        ] {
            let error = error(text);
            assert!(words.iter().all(|word| error.contains(word)), "{text}: {error}");
        }
    }

    #[test]
    fn empty_lists_where_nothing_may_be_named() {
        let text =
            "withdraw = []\n[grant.ipam]\ntypes = [\"x\"]\nnative = []\n[grant.bridge]\nnames = [\"b\"]\ntrunk = []";
        assert_eq!(File::parse(text, Origin::Shipped).unwrap().tables.len(), 2);
    }

    #[test]
    fn digests_are_compared_in_small_letters() {
        let text = format!("digest = \"sha256:{}\"", "AB".repeat(32));
        assert_eq!(File::parse(&text, Origin::Operator).unwrap().digest, Some("ab".repeat(32)));
    }
}
