//! A JSON text with the place of each part.
//!
//! `serde_json` gives no places of values. Its raw values would give places, but with this feature a `Value` reads one
//! key differently from runtimes. Other parsers with places are no longer maintained, or accept more than JSON. So
//! [`Json::parse`] reads the text first, and limits its depth. Then a second pass over the valid text finds the places.

use postern_cni::Json;
use serde_json::{Map, Number, Value};

/// The largest size of a text, in bytes. A larger text is refused.
pub const LONGEST: usize = 4 << 20;

/// A value and its place.
#[derive(Clone, Debug)]
pub struct Node {
    /// The offset of the value's first byte.
    pub at: usize,
    /// The value.
    pub tree: Tree,
}

/// A value whose parts have places.
#[derive(Clone, Debug)]
pub enum Tree {
    Null,
    Bool(bool),
    /// A number as plugins get it: libcni writes whole numbers without fraction and exponent.
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Object(Vec<Member>),
}

/// A key with its value.
#[derive(Clone, Debug)]
pub struct Member {
    /// The key, as spelt.
    pub name: String,
    /// The offset of the key.
    pub at: usize,
    pub value: Node,
}

/// The reason why a text is no JSON, and the offset of the fault.
#[derive(Debug)]
pub struct Fault {
    pub at: usize,
    pub message: String,
}

/// Reads a text.
///
/// # Errors
/// The text is no JSON.
pub fn read(text: &str) -> Result<Node, Fault> {
    let checked = serde_json::from_str::<Json>(text).map_err(|error| {
        // For a text that ends too early, the place is behind the last character that is no white space.
        let end = text.trim_end().len();
        let at = if error.is_eof() { end } else { offset(text, error.line(), error.column()).min(end) };
        let words = error.to_string();
        let message = words.rsplit_once(" at line ").map_or(words.as_str(), |(message, _)| message).to_owned();
        Fault { at, message }
    });
    checked?;
    let mut scan = Scan { text, at: 0 };
    let node = scan.value();
    node.ok_or_else(|| Fault { at: scan.at, message: "this can't be read".to_owned() })
}

/// Returns the offset of a place that a parser names: lines count from 1, columns are bytes.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let at = start.saturating_add(column.saturating_sub(1)).min(text.len());
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Lines and columns of a text. A search in a long text takes no longer than in a short one.
pub struct Positions<'t> {
    text: &'t str,
    /// The offsets at which lines begin.
    lines: Vec<usize>,
    /// The number of characters before each piece of the text.
    characters: Vec<usize>,
}

/// The length of a piece in bytes.
const PIECE: usize = 1024;

impl<'t> Positions<'t> {
    pub fn new(text: &'t str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let mut characters = vec![0];
        let mut before = 0;
        for piece in text.as_bytes().chunks(PIECE) {
            before += beginnings(piece);
            characters.push(before);
        }
        Self { text, lines: std::iter::once(0).chain(ends).collect(), characters }
    }

    /// Returns line and column of an offset. Both count from 1, columns in characters.
    pub fn of(&self, at: usize) -> (usize, usize) {
        let at = at.min(self.text.len());
        let line = self.lines.partition_point(|start| *start <= at);
        let start = line.checked_sub(1).and_then(|line| self.lines.get(line)).copied().unwrap_or_default();
        (line, self.before(at).saturating_sub(self.before(start)) + 1)
    }

    /// Returns the number of characters before an offset.
    fn before(&self, at: usize) -> usize {
        let piece = at / PIECE;
        let rest = self.text.as_bytes().get(piece * PIECE..at).unwrap_or_default();
        self.characters.get(piece).copied().unwrap_or_default() + beginnings(rest)
    }
}

/// Returns the number of characters that begin in a piece of UTF-8.
fn beginnings(piece: &[u8]) -> usize {
    piece.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

/// A pass over a valid text. `None` would mean an invalid text, and never occurs.
struct Scan<'t> {
    text: &'t str,
    at: usize,
}

impl Scan<'_> {
    fn value(&mut self) -> Option<Node> {
        let first = self.next()?;
        let at = self.at;
        let tree = match first {
            b'{' => Tree::Object(self.members()?),
            b'[' => Tree::List(self.items()?),
            b'"' => Tree::Text(self.string()?),
            _ => self.word()?,
        };
        Some(Node { at, tree })
    }

    /// Returns the next byte that is no white space, without passing it.
    fn next(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let gap = rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
        self.at += gap;
        rest.get(gap).copied()
    }

    fn members(&mut self) -> Option<Vec<Member>> {
        let mut members = Vec::new();
        loop {
            // An opening brace or a comma.
            self.at += 1;
            if self.next()? == b'}' {
                break;
            }
            let at = self.at;
            let name = self.string()?;
            self.next().filter(|byte| *byte == b':')?;
            self.at += 1;
            members.push(Member { name, at, value: self.value()? });
            if self.next()? == b'}' {
                break;
            }
        }
        self.at += 1;
        Some(members)
    }

    fn items(&mut self) -> Option<Vec<Node>> {
        let mut items = Vec::new();
        loop {
            self.at += 1;
            if self.next()? == b']' {
                break;
            }
            items.push(self.value()?);
            if self.next()? == b']' {
                break;
            }
        }
        self.at += 1;
        Some(items)
    }

    fn string(&mut self) -> Option<String> {
        let rest = self.text.as_bytes().get(self.at + 1..)?;
        let mut is_escaped = false;
        let end = rest.iter().position(|byte| {
            let ends = *byte == b'"' && !is_escaped;
            is_escaped = *byte == b'\\' && !is_escaped;
            ends
        })?;
        let start = self.at;
        self.at += end + 2;
        serde_json::from_str(self.text.get(start..self.at)?).ok()
    }

    fn word(&mut self) -> Option<Tree> {
        let word = word_at(self.text, self.at).filter(|word| !word.is_empty())?;
        self.at += word.len();
        match serde_json::from_str(word).ok()? {
            Value::Null => Some(Tree::Null),
            Value::Bool(is_on) => Some(Tree::Bool(is_on)),
            Value::Number(number) => Some(Tree::Number(postern_net::whole_number(&number).unwrap_or(number))),
            _ => None,
        }
    }
}

/// Returns the number, or other word without quotes, that begins at an offset, as spelled in the file.
pub fn word_at(text: &str, at: usize) -> Option<&str> {
    let rest = text.get(at..)?;
    rest.split(|c: char| c.is_ascii_whitespace() || matches!(c, ',' | ']' | '}')).next()
}

impl Node {
    /// Returns the members of an object; empty for any other value.
    pub fn members(&self) -> &[Member] {
        match &self.tree {
            Tree::Object(members) => members,
            _ => &[],
        }
    }

    /// Returns the items of a list; empty for any other value.
    pub fn items(&self) -> &[Node] {
        match &self.tree {
            Tree::List(items) => items,
            _ => &[],
        }
    }

    /// Returns the last member of this name in any spelling, unless it is `null`.
    pub fn member(&self, name: &str) -> Option<&Member> {
        let found = self.members().iter().rev().find(|member| member.name.eq_ignore_ascii_case(name));
        found.filter(|member| !member.value.is_null())
    }

    /// Returns the value of the member that [`Self::member`] returns.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.member(name).map(|member| &member.value)
    }

    /// Returns the text, if the value is a text.
    pub fn text(&self) -> Option<&str> {
        match &self.tree {
            Tree::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the text of a member; empty if there is none.
    pub fn word(&self, name: &str) -> &str {
        self.get(name).and_then(Node::text).unwrap_or_default()
    }

    /// True if a member is `true`.
    pub fn is_on(&self, name: &str) -> bool {
        matches!(self.get(name).map(|node| &node.tree), Some(Tree::Bool(true)))
    }

    /// True for `null`.
    pub fn is_null(&self) -> bool {
        matches!(self.tree, Tree::Null)
    }

    /// Returns the kind of the value, for people.
    pub fn kind(&self) -> &'static str {
        match self.tree {
            Tree::Null => "null",
            Tree::Bool(_) => "true or false",
            Tree::Number(_) => "a number",
            Tree::Text(_) => "a text",
            Tree::List(_) => "a list",
            Tree::Object(_) => "an object",
        }
    }

    /// Returns the value without places. Of equal keys, the last counts.
    pub fn to_value(&self) -> Value {
        match &self.tree {
            Tree::Null => Value::Null,
            Tree::Bool(is_on) => Value::Bool(*is_on),
            Tree::Number(number) => Value::Number(number.clone()),
            Tree::Text(text) => Value::String(text.clone()),
            Tree::List(items) => items.iter().map(Self::to_value).collect(),
            Tree::Object(members) => {
                Value::Object(members.iter().map(|one| (one.name.clone(), one.value.to_value())).collect::<Map<_, _>>())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_its_place() {
        let text = "{\n  \"a\": [1, {\"b\\\"\": null}],\n\t\"ü\": \"x\", \"a\": true }";
        let node = read(text).unwrap();
        let places: Vec<(usize, usize)> = node.members().iter().map(|one| Positions::new(text).of(one.at)).collect();
        assert_eq!(places, [(2, 3), (3, 2), (3, 12)]);
        let inner = &node.members()[0].value.items()[1];
        assert_eq!(Positions::new(text).of(inner.members()[0].at), (2, 13));
        assert_eq!(inner.members()[0].name, "b\"");
        assert!(node.is_on("A"));
        assert_eq!(node.to_value(), serde_json::json!({"a": true, "ü": "x"}));
    }

    #[test]
    fn faults_have_places() {
        for (text, line, column) in [
            ("", 1, 1),
            ("{", 1, 2),
            ("{\n  \"a\": 1,\n}\n", 3, 1),
            ("{\"a\" 1}", 1, 6),
            ("{} x", 1, 4),
            ("{\n\n\n", 1, 2),
            ("[ü, 1", 1, 2),
        ] {
            let fault = read(text).unwrap_err();
            assert_eq!(Positions::new(text).of(fault.at), (line, column), "{text:?}: {fault:?}");
            assert!(!fault.message.contains("line"), "{fault:?}");
        }
    }
}
