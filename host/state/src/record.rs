//! Attachment records: what an attachment has caused on the node, written before each act.
//!
//! One file per attachment, `<root>/attachments/<key>`, of JSON lines. The first tells whose it is; each further one an
//! effect about to be caused, that one was undone, or how far a plugin has got ([`Section`]). A line is one write(2) at the end of the file, so a process killed
//! at any instant leaves whole lines and at most one torn at the end, whose act was not begun: it doesn't count.
//!
//! The file's `flock` is held for the life of the process, so a record that can be locked has no living owner. Because a
//! file may be unlinked between being opened and being locked, what was locked is compared with what the name now leads
//! to. Records are small and end with the attachment, so they are never compacted.

use crate::dir::How;
use crate::error::{Result, StateError};
use crate::files::{Directory, READ_LIMIT, lock_before, read_all};
use nix::errno::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Instant;

mod key;
mod lines;
mod section;
mod summary;

use lines::{Fault, FirstLine, Parsed, parse};
use section::Change;

pub use key::{Header, NetworkKey, RecordKey};
pub use section::{DataPath, Section, Stage, plugin_of};
pub use summary::{Summary, Valid, is_busy, list, list_of, list_others, list_strangers, tidy};

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
/// Bytes that the first line of a record has taken room for on a disk.
const PAGE: u64 = 4096;
/// A time in milliseconds with as many digits as those of this age.
const A_TIME: u64 = 1_700_000_000_000;
const CREATE: How = How::ChangeOrCreate(0o600);
/// What the name of a record set aside has after the key; a number follows.
const CORRUPT: &str = ".corrupt-";

/// An effect on the node, caused or about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Effect<E> {
    /// Its number in this record, ascending from 1.
    pub seq: u64,
    /// The section of the plugin that caused it ([`plugin_of`]).
    #[serde(rename = "plugin")]
    pub section: String,
    /// What it is.
    pub effect: E,
    /// By which numbers the kernel knows it, where that was noted since ([`Record::note_handles`]).
    #[serde(skip)]
    pub handles: Vec<u64>,
}

/// A note on an effect that is about to be caused.
#[derive(Serialize)]
struct Caused<'a, E> {
    #[serde(flatten)]
    effect: &'a Effect<E>,
    /// It is the attachment's link. Postern 0.1 passes this over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    link: bool,
}

/// A note on the numbers by which the kernel knows an effect.
#[derive(Serialize)]
struct Known<'a> {
    plugin: &'a str,
    of: u64,
    handles: &'a [u64],
}

/// A note that an effect was undone.
#[derive(Serialize)]
struct Removed<'a> {
    plugin: &'a str,
    removed: u64,
}

/// A note on a plugin's section.
#[derive(Serialize)]
struct Changed<'a> {
    plugin: &'a str,
    #[serde(flatten)]
    change: &'a Change,
}

/// An attachment's record, open and locked. Effects are of type `E`.
pub struct Record<E> {
    directory: Directory,
    /// Its file's name.
    name: String,
    file: File,
    /// Bytes of whole lines.
    length: u64,
    header: Header,
    live: Vec<Effect<E>>,
    sections: Vec<Section>,
    next_seq: u64,
    is_new: bool,
    /// The disk is: what it lists can be removed all the same.
    is_read_only: bool,
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
                Err(error) => {
                    // Perhaps this has made the file, and could not begin it.
                    if let Some(directory) = open_directory(root, false)? {
                        summary::remove_empty(&directory, &name_in(&directory, &header.key())?)?;
                    }
                    return Err(error);
                }
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
        let name = &name_in(&directory, key)?;
        let path = directory.path_of(name);
        let mut is_read_only = false;
        let mut locked = locked_file(&directory, name, if create.is_some() { CREATE } else { How::Change }, deadline);
        if create.is_none() && matches!(&locked, Err(error) if error.is_read_only()) {
            is_read_only = true;
            locked = locked_file(&directory, name, How::Read, deadline);
        }
        let file = match locked {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(None),
            Err(error) if error.is_no_file() => return Err(set_aside(&directory, name, error.to_string())),
            Err(error) => return Err(error),
        };
        let content = match read_all(&file) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                return Err(set_aside(&directory, name, error.to_string()));
            }
            Err(error) => return Err(StateError::io("read", &path, error)),
        };
        let parsed = match parse::<E>(&path, &content) {
            // Killed before it had a first line: nothing was begun.
            Ok(None) if create.is_none() => {
                directory.unlink(name)?;
                return Ok(None);
            }
            Ok(parsed) => parsed,
            Err(Fault::Corrupt(detail)) => return Err(set_aside(&directory, name, detail)),
            Err(Fault::Unusable(error)) => return Err(error),
        };
        if let Some(parsed) = &parsed
            && parsed.header.key() != *key
        {
            return Err(set_aside(&directory, name, "its first line is about another attachment".to_owned()));
        }
        let is_new = parsed.is_none();
        let Some(parsed) = parsed.or_else(|| create.map(Parsed::beginning)) else { return Ok(None) };
        let mut record = Self {
            directory,
            name: name.clone(),
            file,
            length: parsed.length,
            header: parsed.header,
            live: parsed.live,
            sections: parsed.sections,
            next_seq: parsed.next_seq,
            is_new,
            is_read_only,
            warnings: parsed.warnings,
        };
        // What a killed process left of its last line must not run into the next one.
        if record.length < content.len() as u64 && !is_read_only {
            record.file.set_len(record.length).map_err(|error| StateError::io("truncate", &path, error))?;
        }
        if is_new {
            record.write_first()?;
        }
        Ok(Some(record))
    }

    fn write_first(&mut self) -> Result<()> {
        let first = FirstLine { version: VERSION, writer: WRITER.to_owned(), header: self.header.clone() };
        let line = self.line(&first)?;
        self.write(&line)
    }

    /// Begin the record anew in the same file, for the same attachment made again: what it listed is forgotten.
    ///
    /// # Errors
    /// [`StateError::Io`]: nothing may be noted, nor done.
    pub fn renew(&mut self, header: Header) -> Result<()> {
        self.file.set_len(0).map_err(|error| self.failed("truncate", error))?;
        (self.length, self.header, self.next_seq) = (0, header, 1);
        self.live.clear();
        self.sections.clear();
        self.write_first()
    }

    /// Note an effect of `section` before it is caused; its number. `makes_link` says that it is the attachment's link, which
    /// the section is known by from then on ([`Section::made_link`]).
    ///
    /// # Errors
    /// [`StateError::Exhausted`] if the record is full: what can't be read again can't be removed either.
    /// [`StateError::Io`]. With either nothing is noted, and the act must not be begun.
    pub fn append(&mut self, section: &str, effect: &E, makes_link: bool) -> Result<u64> {
        let effect =
            Effect { seq: self.next_seq, section: section.to_owned(), effect: effect.clone(), handles: Vec::new() };
        let line = self.line(&Caused { effect: &effect, link: makes_link })?;
        if self.live.len() >= MOST_EFFECTS || self.length + line.len() as u64 > MOST_BYTES {
            return Err(self.full());
        }
        self.write(&line)?;
        self.next_seq += 1;
        if makes_link {
            section::makes_link(&mut self.sections, section);
        }
        self.live.push(effect);
        Ok(self.next_seq - 1)
    }

    /// Note by which numbers the kernel knows effect `seq`, now that it is there: with them nobody has to look for it. Earlier
    /// versions pass this line over. Unknown numbers of effects are ignored.
    ///
    /// # Errors
    /// As [`Record::append`]: go on all the same, it can be looked for.
    pub fn note_handles(&mut self, seq: u64, handles: &[u64]) -> Result<()> {
        let Some(place) = self.live.iter().position(|effect| effect.seq == seq) else { return Ok(()) };
        let plugin = self.live.get(place).map(|effect| effect.section.clone()).unwrap_or_default();
        let line = self.line(&Known { plugin: &plugin, of: seq, handles })?;
        if self.length + line.len() as u64 > MOST_BYTES {
            return Err(self.full());
        }
        self.write(&line)?;
        if let Some(effect) = self.live.get_mut(place) {
            effect.handles = handles.to_vec();
        }
        Ok(())
    }

    /// Note that the ADD of `section`, of the component with this SHA-256 (hexadecimal), is about to change things. `config` is
    /// a hash of its configuration.
    ///
    /// # Errors
    /// [`StateError::Io`]: nothing may be changed then.
    pub fn begin(&mut self, section: &str, digest: &str, config: &str, time: u64) -> Result<()> {
        self.change(section, Change::Begun { digest: digest.to_owned(), time, config: Some(config.to_owned()) })
    }

    /// Note that `section` has made everything, the addresses of its result, and how its packets go; the latter only where
    /// the record still fits one page with it. The room for [`Record::given`] is taken with it: a disk that is full by then
    /// can't make the runtime's attachment look like a failed one.
    ///
    /// # Errors
    /// [`StateError::Io`], and [`StateError::Exhausted`] if the record is full: the ADD must be undone then.
    pub fn made(&mut self, section: &str, addresses: Vec<String>, path: DataPath) -> Result<()> {
        // As long as the line that will take its place; until then it counts as one that was not finished.
        let given = self.line(&Changed { plugin: section, change: &Change::Given(A_TIME) })?;
        let mut change = Change::Made { addresses: addresses.clone(), path: path.clone() };
        let mut lines = self.line(&Changed { plugin: section, change: &change })?;
        // The routes are what a plugin may have many of.
        for path in [DataPath { routes: Vec::new(), ..path }, DataPath::default()] {
            if self.length + (lines.len() + given.len()) as u64 <= PAGE {
                break;
            }
            change = Change::Made { addresses: addresses.clone(), path };
            lines = self.line(&Changed { plugin: section, change: &change })?;
        }
        let written = lines.len() as u64;
        lines.resize(lines.len() + given.len() - 1, b' ');
        lines.push(b'\n');
        if self.length + lines.len() as u64 > MOST_BYTES {
            return Err(self.full());
        }
        let before = self.length;
        self.write(&lines)?;
        self.length = before + written;
        section::apply(&mut self.sections, section, change);
        Ok(())
    }

    /// Note that `section` is about to join with a link of another plugin. Earlier versions pass this over.
    ///
    /// # Errors
    /// As [`Record::append`].
    pub fn joined(&mut self, section: &str) -> Result<()> {
        self.change(section, Change::Joined(true))
    }

    /// Note that the runtime has the result of `section`. `time` in milliseconds since 1970.
    ///
    /// # Errors
    /// [`StateError::Io`]: the attachment is there nevertheless.
    pub fn given(&mut self, section: &str, time: u64) -> Result<()> {
        self.change(section, Change::Given(time))
    }

    /// Note that the DEL of `section`, or of all of them, begins: what it listed may be gone from now on.
    ///
    /// # Errors
    /// [`StateError::Io`]: go on removing all the same.
    pub fn ending(&mut self, section: Option<&str>) -> Result<()> {
        let own = self.sections.iter().filter(|section| section.stage != Stage::Ending);
        let own = own.map(|section| section.name.clone()).filter(|name| section.is_none_or(|section| section == name));
        own.collect::<Vec<String>>().into_iter().try_for_each(|name| self.change(&name, Change::Ending(true)))
    }

    /// Note that nothing is left to do for `section`, or for all of them: DEL is through, or a failed ADD undone.
    ///
    /// # Errors
    /// As [`Record::mark_removed`].
    pub fn end(&mut self, section: Option<&str>) -> Result<()> {
        let ended: Vec<String> = self.sections.iter().map(|section| section.name.clone()).collect();
        let ended = ended.into_iter().filter(|name| section.is_none_or(|section| section == name));
        ended.into_iter().try_for_each(|name| self.change(&name, Change::Ended(true)))
    }

    fn change(&mut self, section: &str, change: Change) -> Result<()> {
        let line = self.line(&Changed { plugin: section, change: &change })?;
        // An end is noted here whatever becomes of the file, as it goes when nothing is left.
        let ends = matches!(change, Change::Ended(_));
        if !ends && self.length + line.len() as u64 > MOST_BYTES {
            return Err(self.full());
        }
        if ends {
            section::apply(&mut self.sections, section, change);
            return if self.length + line.len() as u64 > READ_LIMIT { Ok(()) } else { self.write(&line) };
        }
        self.write(&line)?;
        section::apply(&mut self.sections, section, change);
        Ok(())
    }

    /// Sections in the order in which their plugins were called.
    #[must_use]
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The name of a plugin's next section, behind all that it has.
    #[must_use]
    pub fn next_section(&self, plugin: &str) -> String {
        section::next(&self.sections, plugin)
    }

    /// The section that a call of a plugin is about, by the hash of the configuration that it is called with: the last one that
    /// was made with that, or else the plugin's last. `None` if it has none.
    #[must_use]
    pub fn called_section(&self, plugin: &str, config: &str) -> Option<&Section> {
        section::called(&self.sections, plugin, config)
    }

    /// Note that effect `seq` was undone. Unknown numbers are ignored.
    ///
    /// # Errors
    /// [`StateError::Io`]: this record knows of it nevertheless, and go on removing: at worst it is undone once more.
    pub fn mark_removed(&mut self, seq: u64) -> Result<()> {
        let Some(place) = self.live.iter().position(|effect| effect.seq == seq) else { return Ok(()) };
        let gone = self.live.remove(place);
        let line = self.line(&Removed { plugin: &gone.section, removed: seq })?;
        // A record of an earlier version may be so long that it couldn't be read with this: at worst it is undone again.
        if self.length + line.len() as u64 > READ_LIMIT { Ok(()) } else { self.write(&line) }
    }

    /// Live effects in the order in which they were noted: of `section`, or of all.
    #[must_use]
    pub fn effects(&self, section: Option<&str>) -> Vec<Effect<E>> {
        self.live.iter().filter(|effect| section.is_none_or(|section| effect.section == section)).cloned().collect()
    }

    /// Whether no effect is live, and no section.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.sections.is_empty()
    }

    /// Whose record this is: for one that existed, as it was begun.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The open file that the lock belongs to: it is free when the last process that has it open is gone.
    #[must_use]
    pub fn lock(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
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

    /// Remove the file if nothing is left in it; whether it was removed. One with damaged lines is set aside: what they
    /// told may be left on the node.
    ///
    /// # Errors
    /// [`StateError::Io`]; [`StateError::Corrupt`] says where it was set aside.
    pub fn remove_file(self) -> Result<bool> {
        // Still locked: whoever waits for the lock sees that the file has lost its name, and looks again.
        match self.warnings.first() {
            _ if !self.is_empty() => Ok(false),
            None => self.directory.unlink(&self.name),
            Some(warning) => Err(set_aside(&self.directory, &self.name, warning.clone())),
        }
    }

    fn full(&self) -> StateError {
        StateError::Exhausted(format!(
            "record {}: an attachment can leave {MOST_EFFECTS} things on the node, noted in {} KiB; its DEL removes them",
            self.directory.path_of(&self.name).display(),
            MOST_BYTES >> 10
        ))
    }

    fn line(&self, content: &impl Serialize) -> Result<Vec<u8>> {
        let mut line = serde_json::to_vec(content).map_err(|error| self.failed("encode a line of", error.into()))?;
        line.push(b'\n');
        Ok(line)
    }

    /// Add whole lines with one write; a partial one (full disk) is taken back.
    fn write(&mut self, lines: &[u8]) -> Result<()> {
        if self.is_read_only {
            return Err(self.failed("write", Errno::EROFS.into()));
        }
        let written = loop {
            match self.file.write_at(lines, self.length) {
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
        StateError::io(operation, self.directory.path_of(&self.name), error)
    }
}

impl<E> Drop for Record<E> {
    /// Whatever a program has left running may have the file open still, and would keep the lock for as long as it lives.
    fn drop(&mut self) {
        // What can't be unlocked is by the end of those who have it open.
        let _ = self.file.unlock();
    }
}

fn open_directory(root: &Path, create: bool) -> Result<Option<Directory>> {
    Directory::state(root, SUBDIRECTORY, create)
}

fn vanished(root: &Path) -> StateError {
    StateError::io("open", root.join(SUBDIRECTORY), Errno::ENOENT)
}

/// The name of the record `key`: that of Postern 0.1 if it made the file.
fn name_in(directory: &Directory, key: &RecordKey) -> Result<String> {
    let earlier = key.earlier().map(|key| key.file_name());
    match earlier {
        Some(name) if directory.stat(&name)?.is_some() => Ok(name),
        _ => Ok(key.file_name()),
    }
}

/// The file `name`, locked, and certainly the one that the name leads to.
fn locked_file(directory: &Directory, name: &str, how: How, deadline: Instant) -> Result<Option<File>> {
    let path = directory.path_of(name);
    loop {
        let file = match directory.dir.file(name, how) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound && how != CREATE => return Ok(None),
            Err(error) => return Err(StateError::io("open", &path, error)),
        };
        let ours = file.metadata().map_err(|error| StateError::io("stat", &path, error))?;
        if !ours.is_file() {
            return Err(StateError::io("open", &path, Errno::EISDIR));
        }
        lock_before(&file, &path, deadline)?;
        let named = directory.stat(name)?;
        if named.is_some_and(|named| named.st_ino == ours.ino() && named.st_dev == ours.dev()) {
            return Ok(Some(file));
        }
    }
}

/// Move a corrupt record out of the way; the error that tells of it. Only with its lock held.
fn set_aside(directory: &Directory, record: &str, detail: String) -> StateError {
    for number in 1.. {
        let name = format!("{record}{CORRUPT}{number}");
        match directory.stat(&name) {
            Ok(Some(_)) => {}
            Err(error) => return error,
            Ok(None) => {
                return match directory.rename(record, &name) {
                    Err(error) => error,
                    Ok(()) => {
                        StateError::Corrupt { path: directory.path_of(record), aside: directory.path_of(&name), detail }
                    }
                };
            }
        }
    }
    vanished(&directory.path_of(record))
}

#[cfg(test)]
mod tests;
