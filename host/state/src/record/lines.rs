//! The reader of a record's lines.

use super::section::{self, Change, Section, is_false};
use super::{Header, NotedEffect, VERSION};
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

/// Any further line, with an effect of type `E`. A line that this version doesn't know has none of the optional parts,
/// and is ignored.
#[derive(Serialize, Deserialize)]
pub(super) struct Line<E> {
    /// The number of an effect that will be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seq: Option<u64>,
    /// The name of the section.
    pub(super) plugin: String,
    /// The effect with the number `seq`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) effect: Option<E>,
    /// True if the effect is the attachment's link. Postern 0.1 ignores this key.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) link: bool,
    /// The number of an effect that was undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) removed: Option<u64>,
    /// The number of an effect. `handles` and `tables` are the kernel's numbers of the effect's objects and tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) of: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) handles: Option<Vec<u64>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) tables: Vec<u64>,
    /// The change of the section.
    #[serde(flatten)]
    pub(super) change: Option<Change>,
}

impl<E> Line<E> {
    /// Makes a line about a section, without any optional part.
    pub(super) fn about(section: &str) -> Self {
        Self {
            seq: None,
            plugin: section.to_owned(),
            effect: None,
            link: false,
            removed: None,
            of: None,
            handles: None,
            tables: Vec::new(),
            change: None,
        }
    }
}

/// The content of a record: the result of all its lines.
pub(super) struct Content<E> {
    pub(super) header: Header,
    pub(super) live: Vec<NotedEffect<E>>,
    pub(super) sections: Vec<Section>,
    pub(super) next_seq: u64,
    /// The length of all whole lines, in bytes.
    pub(super) length: u64,
    /// The damage that was found.
    pub(super) warnings: Vec<String>,
}

impl<E> Content<E> {
    /// Returns the content of a record that has only the first line.
    pub(super) fn beginning(header: Header) -> Self {
        Self { header, live: Vec::new(), sections: Vec::new(), next_seq: 1, length: 0, warnings: Vec::new() }
    }

    /// Applies a line. `effect` is the line's effect.
    pub(super) fn apply<T>(&mut self, line: Line<T>, effect: Option<E>) {
        if let Some(seq) = line.seq {
            for section in self.sections.iter_mut().filter(|section| section.name == line.plugin) {
                section.made_link |= line.link;
            }
            let noted =
                |effect| NotedEffect { seq, section: line.plugin, effect, handles: Vec::new(), tables: Vec::new() };
            self.live.extend(effect.map(noted));
            self.next_seq = self.next_seq.max(seq.saturating_add(1));
        } else if let Some(seq) = line.removed {
            if let Some(place) = self.live.iter().position(|effect| effect.seq == seq) {
                self.live.remove(place);
            }
        } else if let Some(seq) = line.of {
            if let Some(effect) = self.live.iter_mut().find(|effect| effect.seq == seq) {
                (effect.handles, effect.tables) = (line.handles.unwrap_or_default(), line.tables);
            }
        } else if let Some(change) = line.change {
            section::apply(&mut self.sections, &line.plugin, change);
        }
    }
}

/// The reasons why a record can't be read.
pub(super) enum Fault {
    /// The record is damaged, and is set aside.
    Corrupt(String),
    /// The record is whole, but this version can't use it.
    Unusable(StateError),
}

/// Reads the lines; `None` if even the first line is torn.
pub(super) fn parse<E: DeserializeOwned>(path: &Path, bytes: &[u8]) -> std::result::Result<Option<Content<E>>, Fault> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
    let mut lines = bytes.get(..whole).unwrap_or_default().split_inclusive(|byte| *byte == b'\n');
    let Some(first) = lines.next() else {
        return match bytes.first() {
            None | Some(b'{') => Ok(None),
            Some(_) => Err(Fault::Corrupt("it has no lines".to_owned())),
        };
    };
    let bad = |error: serde_json::Error| Fault::Corrupt(format!("its first line can't be read: {error}"));
    let AnyVersion { version, writer } = serde_json::from_slice(first).map_err(bad)?;
    if version != VERSION {
        let writer = if writer.is_empty() { "an unnamed program".to_owned() } else { writer };
        return Err(Fault::Unusable(StateError::OtherVersion { path: path.to_owned(), version, writer }));
    }
    let FirstLine { header, .. } = serde_json::from_slice(first).map_err(bad)?;
    let mut content = Content::beginning(header);
    content.length = first.len() as u64;
    let mut lines = lines.enumerate().peekable();
    while let Some((index, bytes)) = lines.next() {
        let number = index + 2;
        let mut line: Line<Value> = match serde_json::from_slice(bytes) {
            Ok(line) => line,
            // The last line is torn.
            Err(_) if lines.peek().is_none() => break,
            Err(error) => {
                let warning = format!("record {}: line {number} is damaged and left out: {error}", path.display());
                content.warnings.push(warning);
                content.length += bytes.len() as u64;
                continue;
            }
        };
        content.length += bytes.len() as u64;
        let effect = line.effect.take().unwrap_or_default();
        let effect = line.seq.map(|_| serde_json::from_value(effect)).transpose().map_err(|error| {
            let detail = error.to_string();
            Fault::Unusable(StateError::UnknownEffect { path: path.to_owned(), line: number, detail })
        })?;
        content.apply(line, effect);
    }
    Ok(Some(content))
}
