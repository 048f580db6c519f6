//! Values of a policy file, and the places of the configuration that they point to.
//!
//! ```text
//! value       = *( literal / placeholder )
//! placeholder = "${" path [ "|" default ] "}"
//! path        = "config" "." key *( "." ( key / "*" ) )      ; the network configuration on standard input
//!             / "args" "." key [ ".*" ]                      ; CNI_ARGS; with ".*" its parts between commas
//!             / "node.default-link"                          ; the link of the default route; alone, or as a default
//! key         = 1*( ALPHA / DIGIT / "_" / "-" / "/" )
//! default     = any text without "}"
//! ```
//!
//! Spaces around path and default do not count. Keys of `config` match as in the plugins: case is ignored. A
//! configuration that has such a key in two spellings is refused. Keys of `args` match exactly. A string, number or
//! boolean is taken literally: nothing in it is ever read as a pattern or a placeholder. If the key is absent, null or
//! an empty text, the default is used. Without a default there is no value, and nothing is granted.
//!
//! The key `*` stands for every element of a list, and gives one value for each element. All placeholders with stars in
//! a value must be about the same list. These placeholders take the same element at a time.
//!
//! A gateway can be named for an address: `ADDRESS via GATEWAY`. Both sides are values. If both sides have stars for
//! the same list, or if neither side has a star, each address has the gateway of the same element. Otherwise every
//! address goes with every gateway.

use super::error::{Ambiguous, ValueError};
use super::grammar::DEFAULT_LINK;
use super::pattern::Pattern;
use super::ranges;
use crate::prelude::*;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use postern_cni::Json;
use postern_types::LeaseRange;

/// A parsed value of a policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
    /// The list that the stars are about, as the path up to the last star.
    list: Option<Path>,
    /// For a pair, in place of the other fields: an address and its gateway.
    pair: Option<Box<(Self, Self)>>,
}

/// The separator between an address and its gateway.
const VIA: &str = " via ";

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Value {
        path: Path,
        default: Option<String>,
    },
    /// The link of the default route: the empty name, which no link has.
    DefaultLink,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Path {
    root: Root,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    Config,
    Args,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Each,
}

/// The sources of values.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// The network configuration.
    pub config: &'a Json,
    /// `CNI_ARGS`.
    pub args: &'a str,
}

/// A value that a template stands for.
#[derive(Clone, Debug)]
pub enum Value {
    /// A text, a number or a boolean, with the text around it. A `*` of the policy file matches any characters but `/`.
    Text(Pattern),
    /// A range of the configuration, and the set of ranges that contains it. The set is named by the number of the
    /// template, and the positions of all stars except the last.
    Range(LeaseRange, Vec<usize>),
    /// Addresses, each with its gateway. The gateway may be in any network.
    Pairs(Vec<(Pattern, Pattern)>),
    /// Addresses and gateways. Each address may have each gateway that its network contains.
    EachWithEach(Vec<Pattern>, Vec<Pattern>),
}

impl Template {
    /// Reads a value. The error has the fault, and the possible values.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((literal, after)) = split_at_placeholder(rest) {
            let (inside, tail) = after.split_once('}').ok_or_else(|| ValueError::Unclosed(text.to_owned()))?;
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
            }
            parts.push(placeholder(inside)?);
            rest = tail;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        let list = common_list(text, &parts)?;
        Ok(Self { text: text.to_owned(), parts, list, pair: None })
    }

    /// Reads a value that may be a pair, `ADDRESS via GATEWAY`.
    pub fn parse_gateway(text: &str) -> Result<Self, ValueError> {
        let outside = |at: usize| {
            let before = text.get(..at).unwrap_or_default();
            before.rfind("${").is_none_or(|open| before.get(open..).is_some_and(|inside| inside.contains('}')))
        };
        let Some((at, via)) = text.match_indices(VIA).find(|(at, _)| outside(*at)) else { return Self::parse(text) };
        let (address, gateway) = text.split_at(at);
        let gateway = gateway.get(via.len()..).unwrap_or_default();
        let pair = Some(Box::new((Self::parse(address.trim())?, Self::parse(gateway.trim())?)));
        Ok(Self { text: text.to_owned(), parts: Vec::new(), list: None, pair })
    }

    /// Returns address and gateway of a value that is a pair.
    pub fn pair(&self) -> Option<(&Self, &Self)> {
        self.pair.as_deref().map(|(address, gateway)| (address, gateway))
    }

    /// Returns the value as the policy file has it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text with the defaults of all placeholders; `None` if a placeholder has no default.
    pub fn by_default(&self) -> Option<String> {
        let part = |part: &Part| match part {
            Part::Literal(text) => Some(text.clone()),
            Part::Value { default, .. } => default.clone(),
            Part::DefaultLink => None,
        };
        self.parts.iter().map(part).collect()
    }

    /// True if the value is or can be the link of the default route.
    pub fn has_default_link(&self) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Literal(_) => false,
            Part::Value { default, .. } => default.as_deref() == Some(DEFAULT_LINK),
            Part::DefaultLink => true,
        })
    }

    /// True if the value is a single literal or a single placeholder.
    pub fn is_single(&self) -> bool {
        self.parts.len() == 1
    }

    /// Returns the value's literals, without defaults. The flag is true for a literal at the beginning.
    pub fn literals(&self) -> impl Iterator<Item = (bool, &str)> {
        self.parts.iter().enumerate().filter_map(|(number, part)| match part {
            Part::Literal(text) => Some((number == 0, text.as_str())),
            Part::Value { .. } | Part::DefaultLink => None,
        })
    }

    /// Returns the values for this configuration, which must not have a key twice. `ranges` is the number of this
    /// template among the templates of its key, if the key takes ranges.
    pub fn resolve(&self, sources: Sources<'_>, ranges: Option<usize>) -> Result<Vec<Value>, Ambiguous> {
        if let Some((address, gateway)) = self.pair() {
            return Ok(vec![Self::resolve_pair(address, gateway, sources)?]);
        }
        let mut found = Vec::new();
        for (mut set, element) in self.elements(sources)? {
            set.pop();
            let set = ranges.map(|number| core::iter::once(number).chain(set).collect());
            found.extend(self.value(sources, &element, set)?);
        }
        Ok(found)
    }

    fn resolve_pair(address: &Self, gateway: &Self, sources: Sources<'_>) -> Result<Value, Ambiguous> {
        let together = match (&address.list, &gateway.list) {
            (Some(one), Some(other)) => one.same_as(other),
            (None, None) => true,
            _ => false,
        };
        if !together {
            return Ok(Value::EachWithEach(address.texts(sources)?, gateway.texts(sources)?));
        }
        let mut pairs = Vec::new();
        for (_, element) in address.elements(sources)? {
            let both = (address.value(sources, &element, None)?, gateway.value(sources, &element, None)?);
            if let (Some(Value::Text(address)), Some(Value::Text(gateway))) = both {
                pairs.push((address, gateway));
            }
        }
        Ok(Value::Pairs(pairs))
    }

    /// Returns the values that are text.
    fn texts(&self, sources: Sources<'_>) -> Result<Vec<Pattern>, Ambiguous> {
        let text = |value| if let Value::Text(pattern) = value { Some(pattern) } else { None };
        Ok(self.resolve(sources, None)?.into_iter().filter_map(text).collect())
    }

    /// Returns the elements of the list that the stars are about, with their positions. Without stars, returns a single
    /// null.
    fn elements(&self, sources: Sources<'_>) -> Result<Vec<(Vec<usize>, Json)>, Ambiguous> {
        let Some(list) = &self.list else { return Ok(vec![(Vec::new(), Json::Null)]) };
        let (root, steps) = list.start(sources)?;
        let mut elements = Vec::new();
        expand(&root, steps, &mut Vec::new(), &mut elements)?;
        Ok(elements)
    }

    /// Returns the value for one element of the list. `set` is the set of a range.
    fn value(&self, sources: Sources<'_>, element: &Json, set: Option<Vec<usize>>) -> Result<Option<Value>, Ambiguous> {
        let mut pattern = Pattern::default();
        for part in &self.parts {
            let (path, default) = match part {
                Part::Literal(text) => {
                    pattern.push_written(text);
                    continue;
                }
                Part::Value { path, default } => (path, default),
                Part::DefaultLink => continue,
            };
            let (root, steps) = match path.split() {
                Some((_, after)) => (Cow::Borrowed(element), after),
                None => path.start(sources)?,
            };
            match (lookup(&root, steps)?, default) {
                (Some(object @ Json::Object(_)), None) if self.parts.len() == 1 => {
                    // The plugin refuses a value that is not a range, and leases nothing from this value.
                    let Some(set) = set else { return Ok(None) };
                    return Ok(ranges::read(object)?.map(|range| Value::Range(range, set)));
                }
                (Some(value), _) => match scalar(value) {
                    Some(text) => pattern.push_value(&text),
                    None => return Ok(None),
                },
                (None, Some(default)) if default == DEFAULT_LINK => {}
                (None, Some(default)) => pattern.push_written(default),
                (None, None) => return Ok(None),
            }
        }
        Ok(Some(Value::Text(pattern)))
    }
}

impl Path {
    /// Returns the part up to the last star, and the part after the last star.
    fn split(&self) -> Option<(&[Step], &[Step])> {
        let last = self.steps.iter().rposition(|step| *step == Step::Each)?;
        self.steps.split_at_checked(last + 1)
    }

    /// Returns the list that the stars are about.
    fn list(&self) -> Option<Self> {
        self.split().map(|(list, _)| Self { root: self.root, steps: list.to_vec() })
    }

    fn same_as(&self, other: &Self) -> bool {
        let same = |(one, other): (&Step, &Step)| match (one, other) {
            (Step::Key(one), Step::Key(other)) if self.root == Root::Config => one.eq_ignore_ascii_case(other),
            (one, other) => one == other,
        };
        self.root == other.root
            && self.steps.len() == other.steps.len()
            && self.steps.iter().zip(&other.steps).all(same)
    }

    /// Returns the value where the path starts, and the steps that follow.
    fn start<'a>(&self, sources: Sources<'a>) -> Result<(Cow<'a, Json>, &[Step]), Ambiguous> {
        match (self.root, self.steps.split_first()) {
            (Root::Args, Some((Step::Key(key), rest))) => {
                let json = match (argument(sources.args, key)?, rest) {
                    (None, _) => Json::Null,
                    (Some(text), []) => Json::from(text),
                    (Some(text), _) => Json::Array(text.split(',').map(|part| Json::from(part.trim())).collect()),
                };
                Ok((Cow::Owned(json), rest))
            }
            _ => Ok((Cow::Borrowed(sources.config), &self.steps)),
        }
    }
}

impl core::fmt::Display for Path {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self.root {
            Root::Config => "config",
            Root::Args => "args",
        })?;
        for step in &self.steps {
            match step {
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Each => f.write_str(".*")?,
            }
        }
        Ok(())
    }
}

/// Returns the text before and after the first `${`. `split_once` prepares its search, which takes longer than a scan
/// of so short a text.
fn split_at_placeholder(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let at = bytes.windows(2).position(|pair| pair == b"${")?;
    Some((text.get(..at)?, text.get(at + 2..)?))
}

fn placeholder(inside: &str) -> Result<Part, ValueError> {
    let (path, default) = match inside.split_once('|') {
        Some((path, default)) => (path.trim(), Some(default.trim().to_owned())),
        None => (inside.trim(), None),
    };
    match parse_path(path) {
        None if path == DEFAULT_LINK && default.is_none() => Ok(Part::DefaultLink),
        Some(path) => Ok(Part::Value { path, default }),
        None => Err(ValueError::Placeholder(inside.to_owned())),
    }
}

fn parse_path(text: &str) -> Option<Path> {
    let valid = |key: &str| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-/".contains(c));
    let mut keys = text.split('.');
    let root = match keys.next() {
        Some("config") => Root::Config,
        Some("args") => Root::Args,
        _ => return None,
    };
    let steps = keys.map(|key| match key {
        "*" => Some(Step::Each),
        key => valid(key).then(|| Step::Key(key.to_owned())),
    });
    let steps: Vec<Step> = steps.collect::<Option<_>>()?;
    let possible = match root {
        Root::Config => matches!(steps.first(), Some(Step::Key(_))),
        Root::Args => matches!(steps.as_slice(), [Step::Key(_)] | [Step::Key(_), Step::Each]),
    };
    possible.then_some(Path { root, steps })
}

fn common_list(text: &str, parts: &[Part]) -> Result<Option<Path>, ValueError> {
    let mut common: Option<Path> = None;
    for part in parts {
        let Part::Value { path, .. } = part else { continue };
        let Some(list) = path.list() else { continue };
        match &common {
            Some(first) if !first.same_as(&list) => {
                let (first, second) = (first.to_string(), list.to_string());
                return Err(ValueError::Lists { text: text.to_owned(), first, second });
            }
            _ => common = Some(list),
        }
    }
    Ok(common)
}

/// Collects every element that the stars of `steps` lead to, with their positions.
fn expand(
    json: &Json,
    steps: &[Step],
    at: &mut Vec<usize>,
    into: &mut Vec<(Vec<usize>, Json)>,
) -> Result<(), Ambiguous> {
    match steps {
        [] => into.push((at.clone(), json.clone())),
        [Step::Key(key), rest @ ..] => {
            if let Some(value) = member(json, key)? {
                expand(value, rest, at, into)?;
            }
        }
        [Step::Each, rest @ ..] => {
            let items = if let Json::Array(items) = json { items.as_slice() } else { &[] };
            for (number, item) in items.iter().enumerate() {
                at.push(number);
                expand(item, rest, at, into)?;
                at.pop();
            }
        }
    }
    Ok(())
}

/// Returns the value at these keys, if it is not empty.
fn lookup<'j>(json: &'j Json, steps: &[Step]) -> Result<Option<&'j Json>, Ambiguous> {
    let mut at = json;
    for step in steps {
        let Step::Key(key) = step else { return Ok(None) };
        match member(at, key)? {
            Some(value) => at = value,
            None => return Ok(None),
        }
    }
    Ok(Some(at).filter(|json| !json.is_null() && !matches!(json, Json::String(text) if text.is_empty())))
}

/// Returns a member of an object, which must have its key only once.
fn member<'j>(json: &'j Json, key: &str) -> Result<Option<&'j Json>, Ambiguous> {
    let mut members = json.members(key);
    match (members.next(), members.next()) {
        (Some((first, _)), Some((second, _))) => {
            Err(Ambiguous::Spellings { first: first.to_owned(), second: second.to_owned() })
        }
        (found, _) => Ok(found.map(|(_, value)| value).filter(|value| !value.is_null())),
    }
}

/// Refuses an object that has a key twice. The plugins take the last key, and operators should not have to know this.
pub fn spelt_once(json: &Json, key: &str) -> Result<(), Ambiguous> {
    member(json, key).map(drop)
}

fn scalar(json: &Json) -> Option<String> {
    match json {
        Json::String(text) => Some(text.clone()),
        Json::Bool(value) => Some(value.to_string()),
        Json::Number(number) => Some(number.to_string()),
        Json::Null | Json::Array(_) | Json::Object(_) => None,
    }
}

/// Returns a value of `CNI_ARGS`. The plugin refuses malformed pairs.
fn argument<'a>(args: &'a str, key: &str) -> Result<Option<&'a str>, Ambiguous> {
    let values = args.split(';').filter_map(|pair| pair.split_once('=')).filter(|(name, _)| *name == key);
    let mut values = values.map(|(_, value)| value).filter(|value| !value.contains('='));
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(Ambiguous::Argument(key.to_owned())),
        (value, None) => Ok(value.filter(|value| !value.is_empty())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(template: &str, config: &str, args: &str) -> Result<Vec<Value>, String> {
        let config = Json::parse(config.as_bytes(), 4096).unwrap();
        let template = Template::parse(template).map_err(|error| error.to_string())?;
        template.resolve(Sources { config: &config, args }, Some(7)).map_err(|error| error.to_string())
    }

    /// Returns the values, ranges as `{}`.
    fn resolve(template: &str, config: &str) -> Result<Vec<String>, String> {
        let text = |value| match value {
            Value::Text(pattern) => pattern.to_string(),
            Value::Range(..) => "{}".to_owned(),
            other => format!("{other:?}"),
        };
        Ok(found(template, config, "IP=10.0.0.1/8, fd00::1/64;X=;Y=a=b;Z")?.into_iter().map(text).collect())
    }

    #[test]
    fn takes_values_and_defaults() {
        let bridge = "${config.bridge | cni0}";
        for (config, expected) in [
            ("{}", "cni0"),
            (r#"{"bridge":null}"#, "cni0"),
            (r#"{"bridge":""}"#, "cni0"),
            (r#"{"BRIDGE":"br1"}"#, "br1"),
        ] {
            assert_eq!(resolve(bridge, config).unwrap(), [expected], "{config}");
        }
        assert_eq!(resolve("${config.ipam.type}", "{}").unwrap(), [""; 0]);
        assert_eq!(resolve("${config.ipam.type}", r#"{"ipam":"x"}"#).unwrap(), [""; 0]);
        assert_eq!(resolve("a-${config.ipam.type}-b", r#"{"ipam":{"Type":"x"}}"#).unwrap(), ["a-x-b"]);
        assert_eq!(resolve("${config.force | false}", r#"{"force":true}"#).unwrap(), ["true"]);
        assert_eq!(resolve("${config.vlan | 0}", r#"{"vlan":7}"#).unwrap(), ["7"]);
        assert_eq!(resolve("${config.ipam}", r#"{"ipam":{"subnet":"10.0.0.0/8"}}"#).unwrap(), ["{}"]);
        assert_eq!(resolve("${config.ipam}", r#"{"ipam":{}}"#).unwrap(), [""; 0]);
    }

    #[test]
    fn never_expands_a_value() {
        let nested = found("${config.bridge}", r#"{"bridge":"${config.name}*"}"#, "").unwrap();
        let [Value::Text(pattern)] = nested.as_slice() else { panic!("{nested:?}") };
        assert!(pattern.matches("${config.name}*") && !pattern.matches("${config.name}x"));
    }

    #[test]
    fn takes_arguments_whole_and_in_parts() {
        assert_eq!(resolve("${args.IP}", "{}").unwrap(), ["10.0.0.1/8, fd00::1/64"]);
        assert_eq!(resolve("${args.IP.*}", "{}").unwrap(), ["10.0.0.1/8", "fd00::1/64"]);
        for absent in ["${args.X.*}", "${args.Y}", "${args.Z}", "${args.ip}", "${args.GATEWAY.*}"] {
            assert_eq!(resolve(absent, "{}").unwrap(), [""; 0], "{absent}");
        }
        assert!(found("${args.IP}", "{}", "IP=a;IP=b").unwrap_err().to_string().contains("CNI_ARGS has IP twice"));
    }

    #[test]
    fn a_star_is_each_element_and_stars_walk_together() {
        let trunk = r#"{"vlanTrunk":[{"minID":5,"maxID":7,"id":1},{"id":9},{"minID":3},null,4,{"MINID":1,"maxid":2}]}"#;
        assert_eq!(resolve("${config.vlanTrunk.*.id}", trunk).unwrap(), ["1", "9"]);
        let range = "${config.vlanTrunk.*.minID}-${config.vlantrunk.*.maxID}";
        assert_eq!(resolve(range, trunk).unwrap(), ["5-7", "1-2"]);
        assert_eq!(resolve("${config.name}-${config.l.*}", r#"{"name":"n","l":["a",1,""]}"#).unwrap(), ["n-a", "n-1"]);
        assert_eq!(resolve("${config.l.* | x}", r#"{"l":["a",null]}"#).unwrap(), ["a", "x"]);
        for no_list in [r#"{"l":"a"}"#, r#"{"l":{"a":"b"}}"#, "{}", r#"{"l":null}"#] {
            assert_eq!(resolve("${config.l.*}", no_list).unwrap(), [""; 0], "{no_list}");
        }
    }

    #[test]
    fn elements_of_one_list_are_one_set() {
        let range = |third: u8| format!(r#"{{"subnet":"10.0.{third}.0/24"}}"#);
        let ranges = format!(r#"{{"ipam":{{"ranges":[[{},{}],null,[{}]]}}}}"#, range(1), range(2), range(3));
        let found = found("${config.ipam.ranges.*.*}", &ranges, "").unwrap();
        let set = |value| if let Value::Range(_, set) = value { set } else { panic!("{value:?}") };
        assert_eq!(found.into_iter().map(set).collect::<Vec<_>>(), [[7, 0], [7, 0], [7, 2]]);
    }

    #[test]
    fn refuses_two_spellings() {
        for (template, config) in [
            ("${config.bridge}", r#"{"bridge":"a","Bridge":"b"}"#),
            ("${config.ipam.type}", r#"{"ipam":{"type":"a","TYPE":"b"}}"#),
            ("${config.l.*.x}", r#"{"l":[],"L":[]}"#),
            ("${config.l.*.x}", r#"{"l":[{"x":1},{"x":1,"X":2}]}"#),
            ("${config.l.*.x.*}", r#"{"l":[{"x":[],"x":[]}]}"#),
        ] {
            assert!(resolve(template, config).unwrap_err().to_string().contains("has both"), "{template} {config}");
        }
    }

    #[test]
    fn what_is_no_text_grants_nothing() {
        for (template, config) in [
            ("${config.bridge}", r#"{"bridge":["a"]}"#),
            ("${config.bridge | x}", r#"{"bridge":{}}"#),
            ("x${config.bridge}", r#"{"bridge":{}}"#),
            ("${config.l.*.x}", r#"{"l":[{"x":[1]}]}"#),
        ] {
            assert_eq!(resolve(template, config).unwrap(), [""; 0], "{template} {config}");
        }
    }

    #[test]
    fn refuses_bad_placeholders() {
        for bad in [
            "${config}",
            "${env.PATH}",
            "${config.}",
            "${}",
            "${config.a..b}",
            "${config.a b}",
            "${config.*}",
            "${config.a*}",
            "${args}",
            "${args.*}",
            "${args.IP.x}",
            "${args.IP.*.x}",
            "${Config.a}",
        ] {
            assert!(Template::parse(bad).unwrap_err().to_string().contains("it can be `${config.KEY}`"), "{bad}");
        }
        assert!(Template::parse("x${config.a").unwrap_err().to_string().contains("without its `}`"));
        for bad in ["${config.a.*}-${config.b.*}", "${config.a.*.b.*}${config.a.*.c}", "${config.a.*}${args.a.*}"] {
            assert!(Template::parse(bad).unwrap_err().to_string().contains("stars for different lists"), "{bad}");
        }
    }
}
