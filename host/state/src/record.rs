//! Attachment records: what an attachment has caused on the node, written before each act.
//!
//! One file per attachment, `<root>/attachments/<key>`, of JSON lines. The first tells whose it is; each further one an
//! effect about to be caused, or that one was undone. A line is one write(2) at the end of the file, so a process killed
//! at any instant leaves whole lines and at most one torn at the end, whose act was not begun: it doesn't count.
//!
//! The file's `flock` is held for the life of the process, so a record that can be locked has no living owner. Because a
//! file may be unlinked between being opened and being locked, what was locked is compared with what the name now leads
//! to. Records are small and end with the attachment, so they are never compacted.

use crate::error::{Result, StateError};
use crate::files::{Directory, READ_LIMIT, digest, lock_before, read_all, short_hex};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

mod summary;

pub use summary::{Summary, is_held, list};

/// Format version of the records that this code writes and reads.
const VERSION: u64 = 1;
/// What a record says wrote it.
const WRITER: &str = concat!("postern ", env!("CARGO_PKG_VERSION"));
/// Where records are below the state root.
const SUBDIRECTORY: &str = "attachments";
/// Effects that can be live in one record. A whole attachment has five.
const MOST_EFFECTS: usize = 256;
/// Bytes of a record to which nothing more is noted. The note that an effect was undone is shorter than the effect's own
/// line, so with all of them a record stays below twice this.
const MOST_BYTES: u64 = 256 << 10;
const _: () = assert!(2 * MOST_BYTES <= READ_LIMIT, "a record that can be written can be read");
/// What the name of a record set aside has after the key; a number follows.
const CORRUPT: &str = ".corrupt-";

/// File name of an attachment's record: 32 hexadecimal digits of a hash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey(String);

impl RecordKey {
    /// The key of (host's namespace, network, container, interface). Each part is hashed with its length, so that parts
    /// can't run together. The namespace belongs to it: two hosts that share a file system share no attachment.
    #[must_use]
    pub fn new(host_netns_cookie: u64, network: &str, container_id: &str, ifname: &str) -> Self {
        let cookie = host_netns_cookie.to_le_bytes();
        Self(short_hex(&digest(&[&cookie, network.as_bytes(), container_id.as_bytes(), ifname.as_bytes()])))
    }

    /// The key that is this text, as [`RecordKey::as_str`] gave it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (text.len() == 32 && text.bytes().all(is_digit)).then(|| Self(text.to_owned()))
    }

    /// The file's name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whose record it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The network's name.
    pub network: String,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// The boot in which the attachment was made ([`crate::boot_id`]).
    pub boot_id: String,
    /// Cookie of the host's network namespace (`SO_NETNS_COOKIE`, socket(7)).
    pub host_netns_cookie: u64,
    /// Cookie of the container's network namespace, where it could be asked for.
    pub netns_cookie: Option<u64>,
    /// `CNI_NETNS` as given: for people, not to find the namespace by.
    pub netns_path: String,
    /// When the attachment was made, milliseconds since 1970.
    pub created: u64,
}

impl Header {
    /// The key of this attachment.
    #[must_use]
    pub fn key(&self) -> RecordKey {
        RecordKey::new(self.host_netns_cookie, &self.network, &self.container_id, &self.ifname)
    }
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct FirstLine {
    version: u64,
    writer: String,
    #[serde(flatten)]
    header: Header,
}

/// What every version's first line has.
#[derive(Deserialize)]
struct AnyVersion {
    version: u64,
    #[serde(default)]
    writer: String,
}

/// An effect on the node, caused or about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Effect<E> {
    /// Its number in this record, ascending from 1.
    pub seq: u64,
    /// The plugin of the chain that caused it.
    pub plugin: String,
    /// What it is.
    pub effect: E,
}

/// A note that an effect was undone.
#[derive(Serialize)]
struct Removed<'a> {
    plugin: &'a str,
    removed: u64,
}

/// Either of them, as read.
#[derive(Deserialize)]
struct Line {
    plugin: String,
    seq: Option<u64>,
    #[serde(default)]
    effect: Value,
    removed: Option<u64>,
}

/// An attachment's record, open and locked. Effects are of type `E`.
pub struct Record<E> {
    directory: Directory,
    key: RecordKey,
    file: File,
    /// Bytes of whole lines.
    length: u64,
    header: Header,
    live: Vec<Effect<E>>,
    next_seq: u64,
    is_new: bool,
    warnings: Vec<String>,
}

impl<E: Serialize + DeserializeOwned + Clone> Record<E> {
    /// Open the record of `header`'s attachment below `root`, or begin it.
    ///
    /// The lock is waited for until `deadline`, also for another `Record` in this process.
    ///
    /// # Errors
    /// [`StateError::Locked`] at the deadline, [`StateError::OtherVersion`], [`StateError::UnknownEffect`],
    /// [`StateError::Untrusted`], [`StateError::Io`]. A corrupt record is no error: it is set aside, a new one is begun
    /// and [`Record::warnings`] tells.
    pub fn open_or_create(root: &Path, header: &Header, deadline: Instant) -> Result<Self> {
        let mut warnings = Vec::new();
        loop {
            let directory = open_directory(root, true)?.ok_or_else(|| vanished(root))?;
            match Self::open(directory, &header.key(), Some(header), deadline) {
                Ok(Some(mut record)) => {
                    record.warnings.splice(0..0, warnings);
                    return Ok(record);
                }
                Ok(None) => return Err(vanished(root)),
                Err(error @ StateError::Corrupt { .. }) => warnings.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Open the record `key` below `root`; `None` if there is none.
    ///
    /// # Errors
    /// As [`Record::open_or_create`], and [`StateError::Corrupt`] once for a corrupt record: it has been set aside, and
    /// there is none any more.
    pub fn open_existing(root: &Path, key: &RecordKey, deadline: Instant) -> Result<Option<Self>> {
        match open_directory(root, false)? {
            Some(directory) => Self::open(directory, key, None, deadline),
            None => Ok(None),
        }
    }

    fn open(directory: Directory, key: &RecordKey, create: Option<&Header>, deadline: Instant) -> Result<Option<Self>> {
        let path = directory.path_of(key.as_str());
        let Some(file) = locked_file(&directory, key, create.is_some(), deadline)? else { return Ok(None) };
        let content = read_all(&file).map_err(|error| StateError::io("read", &path, error))?;
        let parsed = match parse::<E>(&path, &content) {
            // Killed before it had a first line: nothing was begun.
            Ok(None) if create.is_none() => {
                directory.unlink(key.as_str())?;
                return Ok(None);
            }
            Ok(parsed) => parsed,
            Err(Fault::Corrupt(detail)) => return Err(set_aside(&directory, key, detail)),
            Err(Fault::Unusable(error)) => return Err(error),
        };
        if let Some(parsed) = &parsed
            && parsed.header.key() != *key
        {
            return Err(set_aside(&directory, key, "its first line is about another attachment".to_owned()));
        }
        let is_new = parsed.is_none();
        let Some(parsed) = parsed.or_else(|| create.map(Parsed::beginning)) else { return Ok(None) };
        let mut record = Self {
            directory,
            key: key.clone(),
            file,
            length: parsed.length,
            header: parsed.header,
            live: parsed.live,
            next_seq: parsed.next_seq,
            is_new,
            warnings: parsed.warnings,
        };
        // What a killed process left of its last line must not run into the next one.
        record.file.set_len(record.length).map_err(|error| StateError::io("truncate", &path, error))?;
        if is_new {
            let first = FirstLine { version: VERSION, writer: WRITER.to_owned(), header: record.header.clone() };
            let line = record.line(&first)?;
            record.write(&line)?;
        }
        Ok(Some(record))
    }

    /// Note an effect of `plugin` before it is caused; its number.
    ///
    /// # Errors
    /// [`StateError::Exhausted`] if the record is full: what can't be read again can't be removed either.
    /// [`StateError::Io`]. With either nothing is noted, and the act must not be begun.
    pub fn append(&mut self, plugin: &str, effect: &E) -> Result<u64> {
        let effect = Effect { seq: self.next_seq, plugin: plugin.to_owned(), effect: effect.clone() };
        let line = self.line(&effect)?;
        if self.live.len() >= MOST_EFFECTS || self.length + line.len() as u64 > MOST_BYTES {
            return Err(StateError::Exhausted(format!(
                "record {}: an attachment can leave {MOST_EFFECTS} things on the node, noted in {} KiB; its DEL removes them",
                self.directory.path_of(self.key.as_str()).display(),
                MOST_BYTES >> 10
            )));
        }
        self.write(&line)?;
        self.next_seq += 1;
        self.live.push(effect);
        Ok(self.next_seq - 1)
    }

    /// Note that effect `seq` was undone. Unknown numbers are ignored.
    ///
    /// # Errors
    /// [`StateError::Io`]: this record knows of it nevertheless, and go on removing: at worst it is undone once more.
    pub fn mark_removed(&mut self, seq: u64) -> Result<()> {
        self.mark_where(|effect| effect.seq == seq)
    }

    /// Note that everything of `plugin`, or of all of them, was undone.
    ///
    /// # Errors
    /// As [`Record::mark_removed`].
    pub fn drop_section(&mut self, plugin: Option<&str>) -> Result<()> {
        self.mark_where(|effect| plugin.is_none_or(|plugin| effect.plugin == plugin))
    }

    fn mark_where(&mut self, undone: impl Fn(&Effect<E>) -> bool) -> Result<()> {
        let (gone, live) = std::mem::take(&mut self.live).into_iter().partition(|effect| undone(effect));
        self.live = live;
        let gone: Vec<Effect<E>> = gone;
        let mut lines = Vec::new();
        for effect in &gone {
            lines.extend(self.line(&Removed { plugin: &effect.plugin, removed: effect.seq })?);
        }
        // A record of an earlier version may be so long that it couldn't be read with these: at worst they are undone again.
        if lines.is_empty() || self.length + lines.len() as u64 > READ_LIMIT { Ok(()) } else { self.write(&lines) }
    }

    /// Live effects in the order in which they were noted: of `plugin`, or of all.
    #[must_use]
    pub fn effects(&self, plugin: Option<&str>) -> Vec<Effect<E>> {
        self.live.iter().filter(|effect| plugin.is_none_or(|plugin| effect.plugin == plugin)).cloned().collect()
    }

    /// Whether no effect is live.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Whose record this is: for one that existed, as it was begun.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether this process began it.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// What was found damaged on opening, for the log.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Remove the file if no effect is live; whether it was removed.
    ///
    /// # Errors
    /// [`StateError::Io`].
    pub fn remove_file(self) -> Result<bool> {
        // Still locked: whoever waits for the lock sees that the file has lost its name, and looks again.
        Ok(self.live.is_empty() && self.directory.unlink(self.key.as_str())?)
    }

    fn line(&self, content: &impl Serialize) -> Result<Vec<u8>> {
        let mut line = serde_json::to_vec(content).map_err(|error| self.failed("encode a line of", error.into()))?;
        line.push(b'\n');
        Ok(line)
    }

    /// Add whole lines with one write; a partial one (full disk) is taken back.
    fn write(&mut self, lines: &[u8]) -> Result<()> {
        let written = loop {
            match self.file.write(lines) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match written {
            Ok(count) if count == lines.len() => {
                self.length += count as u64;
                Ok(())
            }
            Ok(_) => {
                self.file.set_len(self.length).map_err(|error| self.failed("truncate", error))?;
                Err(self.failed("write", Errno::ENOSPC.into()))
            }
            Err(error) => Err(self.failed("write", error)),
        }
    }

    fn failed(&self, operation: &'static str, error: io::Error) -> StateError {
        StateError::io(operation, self.directory.path_of(self.key.as_str()), error)
    }
}

fn open_directory(root: &Path, create: bool) -> Result<Option<Directory>> {
    Directory::state(root, SUBDIRECTORY, create)
}

fn vanished(root: &Path) -> StateError {
    StateError::io("open", root.join(SUBDIRECTORY), Errno::ENOENT)
}

/// The file of `key`, locked, and certainly the one that the name leads to.
fn locked_file(directory: &Directory, key: &RecordKey, create: bool, deadline: Instant) -> Result<Option<File>> {
    let path = directory.path_of(key.as_str());
    let flags = OFlag::O_RDWR | OFlag::O_APPEND | if create { OFlag::O_CREAT } else { OFlag::empty() };
    loop {
        let file = match directory.open_file(key.as_str(), flags, 0o600) {
            Ok(file) => file,
            Err(Errno::ENOENT) if !create => return Ok(None),
            Err(errno) => return Err(StateError::io("open", &path, errno)),
        };
        lock_before(&file, &path, deadline)?;
        let ours = file.metadata().map_err(|error| StateError::io("stat", &path, error))?;
        let named = directory.stat(key.as_str())?;
        if named.is_some_and(|named| named.st_ino == ours.ino() && named.st_dev == ours.dev()) {
            return Ok(Some(file));
        }
    }
}

/// Move a corrupt record out of the way; the error that tells of it. Only with its lock held.
fn set_aside(directory: &Directory, key: &RecordKey, detail: String) -> StateError {
    for number in 1.. {
        let name = format!("{key}{CORRUPT}{number}");
        match directory.stat(&name) {
            Ok(Some(_)) => {}
            Err(error) => return error,
            Ok(None) => {
                return match directory.rename(key.as_str(), &name) {
                    Err(error) => error,
                    Ok(()) => StateError::Corrupt {
                        path: directory.path_of(key.as_str()),
                        aside: directory.path_of(&name),
                        detail,
                    },
                };
            }
        }
    }
    vanished(&directory.path_of(key.as_str()))
}

/// What a record's lines say.
struct Parsed<E> {
    header: Header,
    live: Vec<Effect<E>>,
    next_seq: u64,
    length: u64,
    warnings: Vec<String>,
}

impl<E> Parsed<E> {
    fn beginning(header: &Header) -> Self {
        Self { header: header.clone(), live: Vec::new(), next_seq: 1, length: 0, warnings: Vec::new() }
    }
}

enum Fault {
    Corrupt(String),
    Unusable(StateError),
}

/// Read the lines; `None` if not even the first was finished.
fn parse<E: DeserializeOwned>(path: &Path, content: &[u8]) -> std::result::Result<Option<Parsed<E>>, Fault> {
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
            // As the last one: torn.
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
            parsed.live.push(Effect { seq, plugin: line.plugin, effect });
            parsed.next_seq = parsed.next_seq.max(seq.saturating_add(1));
        } else if let Some(seq) = line.removed {
            parsed.live.retain(|effect| effect.seq != seq);
        }
    }
    Ok(Some(parsed))
}

#[cfg(test)]
mod tests;
