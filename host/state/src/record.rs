//! Attachment records: the effects of an attachment on the node, each written before it is made.
//!
//! Each attachment has one file, `<root>/attachments/<key>`, of JSON lines. The first line identifies the attachment.
//! Each further line is about an effect that will be made, an effect that was undone, or a plugin's progress
//! ([`Section`]). Each line is one write(2) at the end of the file. So a process killed at any instant leaves whole
//! lines and at most one torn line at the end. A torn line doesn't count: the process was killed before it began the
//! effect.
//!
//! The process holds the file's `flock` while it lives, so a record that can be locked has no living process. A file
//! may be unlinked between opening and locking. So the locked file is compared with the file that has the name now.
//! Records are never compacted, because they are small and end with the attachment.

use crate::dir::OpenMode;
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

use lines::{Content, Fault, FirstLine, Line, parse};
use section::Change;

pub use key::{Header, NetworkKey, RecordKey};
pub use section::{DataPath, Section, Stage, plugin_of};
pub(crate) use summary::exists;
pub use summary::{
    Summary, Valid, find, has_progress, is_busy, is_there, list, list_collectable, list_known, list_of, list_others,
    list_with, tidy,
};

/// Format version of the records that this code writes and reads.
const VERSION: u64 = 1;
/// The writer's name in a record.
const WRITER: &str = concat!("postern ", env!("CARGO_PKG_VERSION"));
/// The directory of records below the state root.
const SUBDIRECTORY: &str = "attachments";
/// The largest number of live effects in one record. A complete attachment has seven. A plugin that makes each route in
/// its own operation has one effect per route.
const MOST_EFFECTS: usize = 4096;
/// A record of this length in bytes takes no further effects and notes. A line about an undone effect is shorter than
/// the effect's own line. So with lines about the undoing of all effects, a record stays below twice this length.
const MOST_BYTES: u64 = 1 << 20;
const _: () = assert!(2 * MOST_BYTES <= READ_LIMIT, "a record that can be written can be read");
/// The room in bytes that the first line of a record takes on a disk.
const PAGE: u64 = 4096;
/// A time in milliseconds with as many digits as the current time.
const A_TIME: u64 = 1_700_000_000_000;
const CREATE: OpenMode = OpenMode::ChangeOrCreate(0o600);
/// The suffix after the key in the name of a record that was set aside; a number follows.
const CORRUPT: &str = ".corrupt-";

/// An effect on the node, made or about to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedEffect<E> {
    /// The effect's number in this record, ascending from 1.
    pub seq: u64,
    /// The section of the plugin that made the effect ([`plugin_of`]).
    pub section: String,
    /// The effect itself.
    pub effect: E,
    /// The kernel's numbers of the effect's objects, if they were noted ([`Record::note_handles`]).
    pub handles: Vec<u64>,
    /// The kernel's numbers of the tables that have these objects, if they were noted.
    pub tables: Vec<u64>,
}

/// An attachment's record, open and locked. Effects are of type `E`. A function that writes a line can fail with
/// [`StateError::Io`].
pub struct Record<E> {
    directory: Directory,
    /// The name of the record's file.
    name: String,
    file: File,
    content: Content<E>,
    is_new: bool,
    /// True if the disk is read-only. The listed effects can still be removed.
    is_read_only: bool,
}

impl<E: Serialize + DeserializeOwned + Clone> Record<E> {
    /// Opens the record of `header`'s attachment below `root`, or begins a new record.
    ///
    /// Waits for the lock until `deadline`, also if another `Record` of this process holds it.
    ///
    /// # Errors
    /// [`StateError::Locked`] at the deadline, [`StateError::OtherVersion`], [`StateError::UnknownEffect`],
    /// [`StateError::Untrusted`], [`StateError::Io`]. A corrupt record is no error. The record is set aside, a new
    /// record is begun, and [`Record::warnings`] reports the damage.
    pub fn open_or_create(root: &Path, header: &Header, deadline: Instant) -> Result<Self> {
        let mut warnings = Vec::new();
        loop {
            let directory = Directory::make_state(root, SUBDIRECTORY)?;
            match Self::open(directory, &header.key(), Some(header), deadline) {
                Ok(Some(mut record)) => {
                    record.content.warnings.splice(0..0, warnings);
                    return Ok(record);
                }
                Ok(None) => return Err(StateError::io("open", root.join(SUBDIRECTORY), Errno::ENOENT)),
                Err(error @ StateError::Corrupt { .. }) => warnings.push(error.to_string()),
                Err(error) => {
                    // The failed call may have made the file, but not its first line.
                    if let Some(directory) = open_directory(root)? {
                        summary::remove_empty(&directory, &name_in(&directory, &header.key())?)?;
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Opens the record `key` below `root`; `None` if there is no such record.
    ///
    /// # Errors
    /// As [`Record::open_or_create`], and [`StateError::Corrupt`] for a corrupt record. The record has then been set
    /// aside, so the next call finds no record.
    pub fn open_existing(root: &Path, key: &RecordKey, deadline: Instant) -> Result<Option<Self>> {
        match open_directory(root)? {
            Some(directory) => Self::open(directory, key, None, deadline),
            None => Ok(None),
        }
    }

    fn open(directory: Directory, key: &RecordKey, create: Option<&Header>, deadline: Instant) -> Result<Option<Self>> {
        let name = &name_in(&directory, key)?;
        let path = directory.path_of(name);
        let mut is_read_only = false;
        let mut locked =
            locked_file(&directory, name, if create.is_some() { CREATE } else { OpenMode::Change }, deadline);
        if create.is_none() && matches!(&locked, Err(error) if error.is_read_only()) {
            is_read_only = true;
            locked = locked_file(&directory, name, OpenMode::Read, deadline);
        }
        let file = match locked {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(None),
            Err(error) if error.is_no_file() => return Err(set_aside(&directory, name, error.to_string())),
            Err(error) => return Err(error),
        };
        let bytes = match read_all(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                return Err(set_aside(&directory, name, error.to_string()));
            }
            Err(error) => return Err(StateError::io("read", &path, error)),
        };
        let parsed = match parse::<E>(&path, &bytes) {
            // The process was killed before it wrote a first line, and began no effect.
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
        let begun = || create.cloned().map(Content::beginning);
        let Some(content) = parsed.or_else(begun) else { return Ok(None) };
        let mut record = Self { directory, name: name.clone(), file, content, is_new, is_read_only };
        // The next line must not follow directly on the torn line of a killed process.
        if record.content.length < bytes.len() as u64 && !is_read_only {
            record.file.set_len(record.content.length).map_err(|error| StateError::io("truncate", &path, error))?;
        }
        if is_new {
            record.write_first()?;
        }
        Ok(Some(record))
    }

    fn write_first(&mut self) -> Result<()> {
        let first = FirstLine { version: VERSION, writer: WRITER.to_owned(), header: self.content.header.clone() };
        let line = self.encode(&first)?;
        self.write(&line)
    }

    /// Begins the record anew in the same file, when the same attachment is made again. The earlier lines are dropped.
    /// After an error, the caller must not note or do anything.
    pub fn renew(&mut self, header: Header) -> Result<()> {
        self.file.set_len(0).map_err(|error| self.failed("truncate", error))?;
        let warnings = std::mem::take(&mut self.content.warnings);
        self.content = Content { warnings, ..Content::beginning(header) };
        self.write_first()
    }

    /// Notes an effect of `section` before it is made, and returns its number. `makes_link` is true for the
    /// attachment's link, and sets [`Section::made_link`].
    ///
    /// # Errors
    /// [`StateError::Exhausted`] if the record is full: a record that is too long to be read could not be undone.
    /// [`StateError::Io`]. After an error nothing is noted, and the effect must not be made.
    pub fn append(&mut self, section: &str, effect: &E, makes_link: bool) -> Result<u64> {
        if self.content.live.len() >= MOST_EFFECTS {
            return Err(self.full());
        }
        let seq = self.content.next_seq;
        self.note(Line { seq: Some(seq), effect: Some(effect), link: makes_link, ..Line::about(section) })?;
        Ok(seq)
    }

    /// Notes the kernel's numbers of the objects of effect `seq`, which was made, so that the removal needs no search.
    /// `tables` are the numbers of the tables that have the objects, if known. Earlier versions ignore this line, or
    /// its tables. Unknown effect numbers are ignored. The caller should continue after an error, because a search can
    /// find the effect.
    pub fn note_handles(&mut self, seq: u64, handles: &[u64], tables: &[u64]) -> Result<()> {
        let Some(effect) = self.live(seq) else { return Ok(()) };
        let (handles, tables) = (Some(handles.to_vec()), tables.to_vec());
        self.note(Line { of: Some(seq), handles, tables, ..Line::about(&effect.section) })
    }

    /// Notes that the ADD of `section` will make effects next. `digest` is the SHA-256 of the plugin's component
    /// (hexadecimal), `config` a hash of the plugin's configuration. After an error, the effects must not be made.
    pub fn begin(&mut self, section: &str, digest: &str, config: &str, time: u64) -> Result<()> {
        self.change(section, Change::Begun { digest: digest.to_owned(), time, config: Some(config.to_owned()) })
    }

    /// Notes that `section` has made all its effects, with the addresses of its result and the data path of its
    /// packets. The data path is noted only if the record then still fits one page. The room for the line of
    /// [`Record::given`] is taken at the same time. So even if the disk is full later, the runtime's attachment does
    /// not look like a failed ADD.
    ///
    /// # Errors
    /// [`StateError::Io`], and [`StateError::Exhausted`] if the record is full: the ADD must be undone then.
    pub fn made(&mut self, section: &str, addresses: Vec<String>, path: DataPath) -> Result<()> {
        let line = |change| Line::<&E> { change: Some(change), ..Line::about(section) };
        // `given` is as long as the final line. Spaces keep this room, and count as an unfinished line until the final
        // line replaces the spaces.
        let given = self.encode(&line(Change::Given(A_TIME)))?;
        let mut made = line(Change::Made { addresses: addresses.clone(), path: path.clone() });
        let mut text = self.encode(&made)?;
        // Of all parts of the data path, only the routes can be many.
        for path in [DataPath { routes: Vec::new(), ..path }, DataPath::default()] {
            if self.content.length + (text.len() + given.len()) as u64 <= PAGE {
                break;
            }
            made = line(Change::Made { addresses: addresses.clone(), path });
            text = self.encode(&made)?;
        }
        let whole = self.content.length + text.len() as u64;
        text.resize(text.len() + given.len() - 1, b' ');
        text.push(b'\n');
        self.write_if_room(&text)?;
        self.content.length = whole;
        self.content.apply(made, None);
        Ok(())
    }

    /// Notes that `section` will join a link of another plugin to a bridge next. Earlier versions ignore this line.
    pub fn joined(&mut self, section: &str) -> Result<()> {
        self.change(section, Change::Joined(true))
    }

    /// Notes that the runtime has the result of `section`. `time` is in milliseconds since 1970. The attachment exists
    /// after an error too.
    pub fn given(&mut self, section: &str, time: u64) -> Result<()> {
        self.change(section, Change::Given(time))
    }

    /// Notes that the DEL of `section`, or of all sections, begins: from now on listed effects may be gone. The caller
    /// should continue the removal after an error.
    pub fn ending(&mut self, section: Option<&str>) -> Result<()> {
        let mut names = self.names(section, |section| section.stage != Stage::Ending).into_iter();
        names.try_for_each(|name| self.change(&name, Change::Ending(true)))
    }

    /// Notes that `section`, or all sections, needs no more work: its DEL is complete, or its failed ADD is undone.
    pub fn end(&mut self, section: Option<&str>) -> Result<()> {
        let ended = |name: &String| Line { change: Some(Change::Ended(true)), ..Line::about(name) };
        self.names(section, |_| true).iter().try_for_each(|name| self.note_end(ended(name)))
    }

    /// Returns the names of the `wanted` sections: of all sections, or of `section` only.
    fn names(&self, section: Option<&str>, wanted: impl Fn(&Section) -> bool) -> Vec<String> {
        let own = self.content.sections.iter().filter(|own| section.is_none_or(|section| section == own.name));
        own.filter(|section| wanted(section)).map(|section| section.name.clone()).collect()
    }

    fn change(&mut self, section: &str, change: Change) -> Result<()> {
        self.note(Line { change: Some(change), ..Line::about(section) })
    }

    /// Writes a line, and applies it to the content in memory.
    fn note(&mut self, line: Line<&E>) -> Result<()> {
        let text = self.encode(&line)?;
        self.write_if_room(&text)?;
        let effect = line.effect.cloned();
        self.content.apply(line, effect);
        Ok(())
    }

    /// Applies a line about the end of an effect or a section to the content in memory, and writes it. The content in
    /// memory changes even if the write fails, so that the file of an empty record can be removed.
    fn note_end(&mut self, line: Line<&E>) -> Result<()> {
        let text = self.encode(&line)?;
        self.content.apply(line, None);
        // A record of an earlier version may be so long that this line would make the record unreadable. Without the
        // line an effect is undone twice at worst.
        if self.content.length + text.len() as u64 > READ_LIMIT { Ok(()) } else { self.write(&text) }
    }

    /// Returns the sections in the order in which their plugins were called.
    #[must_use]
    pub fn sections(&self) -> &[Section] {
        &self.content.sections
    }

    /// Notes that effect `seq` was undone. Unknown numbers are ignored.
    ///
    /// # Errors
    /// [`StateError::Io`]: the note counts in memory, so the caller should continue the removal. At worst the effect is
    /// undone twice.
    pub fn mark_removed(&mut self, seq: u64) -> Result<()> {
        let Some(gone) = self.live(seq) else { return Ok(()) };
        self.note_end(Line { removed: Some(seq), ..Line::about(&gone.section) })
    }

    fn live(&self, seq: u64) -> Option<&NotedEffect<E>> {
        self.content.live.iter().find(|effect| effect.seq == seq)
    }

    /// Returns the live effects of `section`, or of all sections, in the order in which they were noted.
    #[must_use]
    pub fn effects(&self, section: Option<&str>) -> Vec<NotedEffect<E>> {
        let own = |effect: &&NotedEffect<E>| section.is_none_or(|section| effect.section == section);
        self.content.live.iter().filter(own).cloned().collect()
    }

    /// True if no effect is live and there is no section.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.content.live.is_empty() && self.content.sections.is_empty()
    }

    /// Returns the header. An existing record keeps its header until [`Record::renew`].
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.content.header
    }

    /// Returns the open file that the lock belongs to. The lock is free when a record with this open file is dropped,
    /// or when the last process with this open file has ended.
    #[must_use]
    pub fn lock(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// True if this process began the record.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns the damage that was found on opening, for the log.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.content.warnings
    }

    /// Removes the file if the record is empty; true if it was removed. A record with damaged lines is set aside,
    /// because effects in these lines may still be on the node.
    ///
    /// # Errors
    /// [`StateError::Io`]; [`StateError::Corrupt`] names the path of the record that was set aside.
    pub fn remove_file(self) -> Result<bool> {
        // The file is still locked. A process that waits for the lock then sees that the file has lost its name, and
        // opens the name again.
        match self.content.warnings.first() {
            _ if !self.is_empty() => Ok(false),
            None => self.directory.unlink(&self.name),
            Some(warning) => Err(set_aside(&self.directory, &self.name, warning.clone())),
        }
    }

    fn full(&self) -> StateError {
        StateError::Exhausted(format!(
            "record {}: an attachment can leave {MOST_EFFECTS} things on the node, noted in {} KiB; the \
             attachment's DEL removes these things; several routes or addresses in one operation count as one thing",
            self.directory.path_of(&self.name).display(),
            MOST_BYTES >> 10
        ))
    }

    fn encode(&self, line: &impl Serialize) -> Result<Vec<u8>> {
        let mut text = serde_json::to_vec(line).map_err(|error| self.failed("encode a line of", error.into()))?;
        text.push(b'\n');
        Ok(text)
    }

    fn write_if_room(&mut self, lines: &[u8]) -> Result<()> {
        if self.content.length + lines.len() as u64 > MOST_BYTES { Err(self.full()) } else { self.write(lines) }
    }

    /// Adds whole lines with one write; a partial write (full disk) is taken back.
    fn write(&mut self, lines: &[u8]) -> Result<()> {
        if self.is_read_only {
            return Err(self.failed("write", Errno::EROFS.into()));
        }
        let written = loop {
            match self.file.write_at(lines, self.content.length) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match written {
            Ok(count) if count == lines.len() => {
                self.content.length += count as u64;
                Ok(())
            }
            Ok(_) => {
                self.file.set_len(self.content.length).map_err(|error| self.failed("truncate", error))?;
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
    /// A running program may have the file open, and would keep the lock until it ends.
    fn drop(&mut self) {
        // If unlocking fails, the lock ends with the processes that have the file open.
        let _ = self.file.unlock();
    }
}

fn open_directory(root: &Path) -> Result<Option<Directory>> {
    Directory::state(root, SUBDIRECTORY)
}

/// Returns the name of the record `key`: the name of Postern 0.1 if that version made the file.
fn name_in(directory: &Directory, key: &RecordKey) -> Result<String> {
    let earlier = key.earlier().map(|key| key.file_name());
    match earlier {
        Some(name) if directory.stat(&name)?.is_some() => Ok(name),
        _ => Ok(key.file_name()),
    }
}

/// Opens and locks the file `name`. The locked file is the file that has the name now.
fn locked_file(directory: &Directory, name: &str, how: OpenMode, deadline: Instant) -> Result<Option<File>> {
    let path = directory.path_of(name);
    loop {
        let file = match directory.file(name, how)? {
            Some(file) => file,
            None if how == CREATE => return Err(StateError::io("open", &path, Errno::ENOENT)),
            None => return Ok(None),
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

/// Sets a corrupt record aside, and returns the error that reports it. The caller must hold the record's lock.
fn set_aside(directory: &Directory, record: &str, detail: String) -> StateError {
    let moved = || {
        let (mut number, named) = (1_u64, |number| format!("{record}{CORRUPT}{number}"));
        while directory.stat(&named(number))?.is_some() {
            number += 1;
        }
        directory.rename(record, &named(number)).map(|()| directory.path_of(&named(number)))
    };
    match moved() {
        Ok(aside) => StateError::Corrupt { path: directory.path_of(record), aside, detail },
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests;
