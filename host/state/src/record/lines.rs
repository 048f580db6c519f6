//! The reader of a record's lines.

use super::section::{self, Begun, Change, Made, Section};
use super::{Effect, Header, VERSION};
use crate::error::StateError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

/// The first line.
#[derive(Serialize, Deserialize)]
pub(super) struct FirstLine {
    pub(super) version: u64,
    pub(super) writer: String,
    #[serde(flatten)]
    pub(super) header: Header,
}

/// The part of the first line that all versions have.
#[derive(Deserialize)]
struct AnyVersion {
    version: u64,
    #[serde(default)]
    writer: String,
}

/// Any further line, as read. A line that this version doesn't know has none of the optional parts, and is ignored.
#[derive(Deserialize)]
struct Line {
    plugin: String,
    seq: Option<u64>,
    #[serde(default)]
    effect: Value,
    #[serde(default)]
    link: bool,
    removed: Option<u64>,
    of: Option<u64>,
    #[serde(default)]
    handles: Vec<u64>,
    #[serde(default)]
    tables: Vec<u64>,
    #[serde(flatten)]
    change: Option<Change>,
}

/// The same line as this version writes it. Each part gets its type at once. Of a [`Line`], serde first keeps parts without
/// a type, which takes several times as long.
///
/// Whatever has another form is no error: it is read as a [`Line`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "E: DeserializeOwned"))]
struct Written<E> {
    plugin: String,
    seq: Option<u64>,
    effect: Option<E>,
    #[serde(default)]
    link: bool,
    removed: Option<u64>,
    of: Option<u64>,
    #[serde(default)]
    handles: Vec<u64>,
    #[serde(default)]
    tables: Vec<u64>,
    begun: Option<Begun>,
    made: Option<Made>,
    joined: Option<bool>,
    given: Option<u64>,
    ending: Option<bool>,
    ended: Option<bool>,
}

/// What a line says.
enum Entry<E> {
    /// An effect is about to be made.
    Effect { seq: u64, effect: E, link: bool },
    /// An effect was undone.
    Removed(u64),
    /// The kernel's numbers for an effect.
    Handles { of: u64, handles: Vec<u64>, tables: Vec<u64> },
    /// A section has changed.
    Change(Change),
    /// Something that this version doesn't know.
    Unknown,
}

impl<E: DeserializeOwned> Entry<E> {
    /// Reads a line of a plugin's section.
    ///
    /// # Errors
    /// The line is damaged, or it has an effect that this version doesn't know.
    fn read(bytes: &[u8]) -> Result<(String, Self), Unread> {
        if let Ok(line) = serde_json::from_slice::<Written<E>>(bytes)
            && let Some(read) = line.entry()
        {
            return Ok(read);
        }
        let line: Line = serde_json::from_slice(bytes).map_err(Unread::Damaged)?;
        let entry = if let Some(seq) = line.seq {
            let effect = serde_json::from_value(line.effect).map_err(Unread::Effect)?;
            Self::Effect { seq, effect, link: line.link }
        } else {
            line.removed
                .map(Self::Removed)
                .or_else(|| line.of.map(|of| Self::Handles { of, handles: line.handles, tables: line.tables }))
                .or_else(|| line.change.map(Self::Change))
                .unwrap_or(Self::Unknown)
        };
        Ok((line.plugin, entry))
    }
}

impl<E> Written<E> {
    /// Returns the plugin's section, and what the line says of it. `None` if it says nothing, or more than one thing.
    fn entry(self) -> Option<(String, Entry<E>)> {
        let Self { plugin, seq, effect, link, removed, of, handles, tables, begun, made, joined, given, ending, ended } =
            self;
        let mut entries = [
            seq.zip(effect).map(|(seq, effect)| Entry::Effect { seq, effect, link }),
            removed.map(Entry::Removed),
            of.map(|of| Entry::Handles { of, handles, tables }),
            begun.map(|begun| Entry::Change(Change::Begun(begun))),
            made.map(|made| Entry::Change(Change::Made(made))),
            joined.map(|joined| Entry::Change(Change::Joined(joined))),
            given.map(|time| Entry::Change(Change::Given(time))),
            ending.map(|ending| Entry::Change(Change::Ending(ending))),
            ended.map(|ended| Entry::Change(Change::Ended(ended))),
        ]
        .into_iter()
        .flatten();
        entries.next().filter(|_| entries.next().is_none()).map(|entry| (plugin, entry))
    }
}

/// The reasons why a line can't be read.
enum Unread {
    Damaged(serde_json::Error),
    Effect(serde_json::Error),
}

/// The content of a record's lines.
pub(super) struct Parsed<E> {
    pub(super) header: Header,
    pub(super) live: Vec<Effect<E>>,
    pub(super) sections: Vec<Section>,
    pub(super) next_seq: u64,
    /// The length of all whole lines, in bytes.
    pub(super) length: u64,
    pub(super) warnings: Vec<String>,
}

impl<E> Parsed<E> {
    pub(super) fn beginning(header: &Header) -> Self {
        Self {
            header: header.clone(),
            live: Vec::new(),
            sections: Vec::new(),
            next_seq: 1,
            length: 0,
            warnings: Vec::new(),
        }
    }
}

/// The reasons why a record can't be read.
pub(super) enum Fault {
    /// It is damaged, and is set aside.
    Corrupt(String),
    /// It is whole, but this version can't use it.
    Unusable(StateError),
}

/// Reads the lines; `None` if not even the first one was finished.
pub(super) fn parse<E: DeserializeOwned>(path: &Path, content: &[u8]) -> Result<Option<Parsed<E>>, Fault> {
    let whole = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
    let mut lines = content.get(..whole).unwrap_or_default().split_inclusive(|byte| *byte == b'\n');
    let Some(first) = lines.next() else {
        return match content.first() {
            None | Some(b'{') => Ok(None),
            Some(_) => Err(Fault::Corrupt("it has no lines".to_owned())),
        };
    };
    let header = header_of(path, first)?;
    let mut parsed = Parsed::beginning(&header);
    parsed.length = first.len() as u64;
    let mut lines = lines.enumerate().peekable();
    while let Some((index, bytes)) = lines.next() {
        let number = index + 2;
        let (plugin, entry) = match Entry::read(bytes) {
            Ok(read) => read,
            // The last line is torn.
            Err(Unread::Damaged(_)) if lines.peek().is_none() => break,
            Err(Unread::Damaged(error)) => {
                parsed
                    .warnings
                    .push(format!("record {}: line {number} is damaged and left out: {error}", path.display()));
                parsed.length += bytes.len() as u64;
                continue;
            }
            Err(Unread::Effect(error)) => {
                let detail = error.to_string();
                return Err(Fault::Unusable(StateError::UnknownEffect { path: path.to_owned(), line: number, detail }));
            }
        };
        parsed.length += bytes.len() as u64;
        match entry {
            Entry::Effect { seq, effect, link } => {
                if link {
                    section::makes_link(&mut parsed.sections, &plugin);
                }
                parsed.live.push(Effect { seq, section: plugin, effect, handles: Vec::new(), tables: Vec::new() });
                parsed.next_seq = parsed.next_seq.max(seq.saturating_add(1));
            }
            Entry::Removed(seq) => parsed.live.retain(|effect| effect.seq != seq),
            Entry::Handles { of, handles, tables } => {
                if let Some(effect) = parsed.live.iter_mut().find(|effect| effect.seq == of) {
                    (effect.handles, effect.tables) = (handles, tables);
                }
            }
            Entry::Change(change) => section::apply(&mut parsed.sections, &plugin, change),
            Entry::Unknown => {}
        }
    }
    Ok(Some(parsed))
}

/// Reads the first line.
fn header_of(path: &Path, first: &[u8]) -> Result<Header, Fault> {
    let read = serde_json::from_slice::<FirstLine>(first);
    if let Ok(FirstLine { version: VERSION, header, .. }) = read {
        return Ok(header);
    }
    let bad = |error: serde_json::Error| Fault::Corrupt(format!("its first line can't be read: {error}"));
    let AnyVersion { version, writer } = serde_json::from_slice(first).map_err(bad)?;
    if version == VERSION {
        return read.map(|first| first.header).map_err(bad);
    }
    let writer = if writer.is_empty() { "an unnamed program".to_owned() } else { writer };
    Err(Fault::Unusable(StateError::OtherVersion { path: path.to_owned(), version, writer }))
}

#[cfg(test)]
mod tests {
    use super::super::section::DataPath;
    use super::super::{Changed, EffectLine, HandlesLine, Removed};
    use super::*;
    use serde_json::json;

    fn effect(seq: u64) -> Effect<Value> {
        let effect = json!({"effect": "veth", "host": "veth0"});
        Effect { seq, section: "bridge".to_owned(), effect, handles: Vec::new(), tables: Vec::new() }
    }

    /// Without this, a new kind of line would be read, but slowly.
    #[test]
    fn each_line_that_is_written_is_read_in_its_own_form() {
        let plugin = "bridge";
        let path = DataPath { up: true, ..DataPath::default() };
        let changes = [
            Change::Begun(Begun { digest: "d".to_owned(), time: 1, config: Some("c".to_owned()) }),
            Change::Made(Made { addresses: vec!["10.1.0.2/16".to_owned()], path }),
            Change::Joined(true),
            Change::Given(2),
            Change::Ending(true),
            Change::Ended(true),
        ];
        let mut lines: Vec<Vec<u8>> =
            changes.iter().map(|change| serde_json::to_vec(&Changed { plugin, change }).unwrap()).collect();
        lines.push(serde_json::to_vec(&EffectLine { effect: &effect(1), link: true }).unwrap());
        lines.push(serde_json::to_vec(&HandlesLine { plugin, of: 1, handles: &[4], tables: &[2] }).unwrap());
        lines.push(serde_json::to_vec(&Removed { plugin, removed: 1 }).unwrap());
        for line in lines {
            let text = String::from_utf8_lossy(&line).into_owned();
            let written: Written<Value> =
                serde_json::from_slice(&line).unwrap_or_else(|error| panic!("{text}: {error}"));
            let (section, entry) = written.entry().unwrap_or_else(|| panic!("{text}"));
            assert_eq!(section, plugin, "{text}");
            assert!(!matches!(entry, Entry::Unknown), "{text}");
        }
    }

    #[test]
    fn other_lines_are_read_as_before() {
        let read = |line: Value| Entry::<Value>::read(&serde_json::to_vec(&line).unwrap());
        // Later versions may add parts, kinds of lines, and other forms of a part.
        let later = json!({"plugin": "bridge", "seq": 7, "effect": {"effect": "veth"}, "more": 1});
        assert!(matches!(read(later), Ok((_, Entry::Effect { seq: 7, link: false, .. }))));
        for line in [json!({"plugin": "bridge", "paused": true}), json!({"plugin": "bridge", "begun": true})] {
            assert!(matches!(read(line.clone()), Ok((_, Entry::Unknown))), "{line}");
        }
        // The first of two counts.
        let both = json!({"plugin": "bridge", "removed": 3, "given": 5});
        assert!(matches!(read(both), Ok((_, Entry::Removed(3)))));
        assert!(matches!(read(json!({"seq": 7})), Err(Unread::Damaged(_))));
        let effect = Entry::<u64>::read(br#"{"plugin": "bridge", "seq": 7, "effect": "text"}"#);
        assert!(matches!(effect, Err(Unread::Effect(_))));
    }
}
