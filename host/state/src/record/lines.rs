//! The reader of a record's lines.

use super::section::{self, Change, Section};
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

/// The content of a record's lines.
pub(super) struct Parsed<E> {
    pub(super) header: Header,
    pub(super) live: Vec<NotedEffect<E>>,
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
pub(super) fn parse<E: DeserializeOwned>(path: &Path, content: &[u8]) -> std::result::Result<Option<Parsed<E>>, Fault> {
    let whole = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
    let mut lines = content.get(..whole).unwrap_or_default().split_inclusive(|byte| *byte == b'\n');
    let Some(first) = lines.next() else {
        return match content.first() {
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
    let mut parsed = Parsed::beginning(&header);
    parsed.length = first.len() as u64;
    let mut lines = lines.enumerate().peekable();
    while let Some((index, bytes)) = lines.next() {
        let number = index + 2;
        let line: Line = match serde_json::from_slice(bytes) {
            Ok(line) => line,
            // The last line is torn.
            Err(_) if lines.peek().is_none() => break,
            Err(error) => {
                parsed
                    .warnings
                    .push(format!("record {}: line {number} is damaged and left out: {error}", path.display()));
                parsed.length += bytes.len() as u64;
                continue;
            }
        };
        parsed.length += bytes.len() as u64;
        if let Some(seq) = line.seq {
            let effect = serde_json::from_value(line.effect).map_err(|error| {
                let detail = error.to_string();
                Fault::Unusable(StateError::UnknownEffect { path: path.to_owned(), line: number, detail })
            })?;
            if line.link {
                section::makes_link(&mut parsed.sections, &line.plugin);
            }
            parsed.live.push(NotedEffect {
                seq,
                section: line.plugin,
                effect,
                handles: Vec::new(),
                tables: Vec::new(),
            });
            parsed.next_seq = parsed.next_seq.max(seq.saturating_add(1));
        } else if let Some(seq) = line.removed {
            parsed.live.retain(|effect| effect.seq != seq);
        } else if let Some(seq) = line.of {
            let noted = parsed.live.iter_mut().find(|effect| effect.seq == seq);
            if let Some(effect) = noted {
                (effect.handles, effect.tables) = (line.handles, line.tables);
            }
        } else if let Some(change) = line.change {
            section::apply(&mut parsed.sections, &line.plugin, change);
        }
    }
    Ok(Some(parsed))
}
