//! Indexes of attachments: by ports of the node (`host_ports.rs`), and by claims (`claims.rs`).
//!
//! The truth is in the records. An index only tells which records to read, so that a run need not read all records. An
//! entry may be out of date: its record may be gone, or may have changed.
//!
//! Each network namespace of the host has one sparse file of slots, `<root>/<subdirectory>/<cookie>`.

use crate::dir::OpenMode;
use crate::error::{Result, StateError};
use crate::files::{Directory, lock_before};
use crate::record::RecordKey;
use base16ct::lower::{decode, encode_string};
use nix::errno::Errno;
use nix::sys::stat::lstat;
use std::cell::Cell;
use std::fs::File;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The length of a slot in bytes. A slot has the key of a record: the name of the record's file, in binary form.
pub(crate) const SLOT: usize = 24;
/// A slot with several attachments.
const SEVERAL: [u8; SLOT] = [0xff; SLOT];

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotHolder {
    /// No attachment has been in this slot since the file was made.
    Nobody,
    /// At most this attachment is in the slot.
    One(RecordKey),
    /// Any number of attachments may be in the slot: all records have to be read.
    Several,
}

/// The subject of an index.
pub trait IndexSubject {
    /// The directory of the index's files.
    const SUBDIRECTORY: &'static str;
    /// True if most nodes have no such index, and each run looks for it several times.
    const IS_RARE: bool;
}

/// The index of one network namespace.
///
/// All errors are [`StateError::Untrusted`] and [`StateError::Io`], and [`StateError::Locked`] at a deadline.
#[derive(Debug)]
pub struct Index<Of> {
    file: File,
    path: PathBuf,
    /// The state directory.
    pub(crate) root: PathBuf,
    is_new: Cell<bool>,
    of: PhantomData<Of>,
}

impl<Of: IndexSubject> Index<Of> {
    /// Opens the index, or makes it, and waits for its lock.
    pub fn open(root: &Path, host_netns_cookie: u64, deadline: Instant) -> Result<Self> {
        let directory = Directory::make_state(root, Of::SUBDIRECTORY)?;
        let opened = Self::opened(&directory, root, host_netns_cookie, OpenMode::ChangeOrCreate(0o600))?;
        let absent = || StateError::io("open", root.join(Of::SUBDIRECTORY), Errno::ENOENT);
        opened.ok_or_else(absent)?.lock(deadline)
    }

    /// Opens the index without its lock, so no decision may depend on the content. `None` if there is no index.
    pub fn unlocked(root: &Path, host_netns_cookie: u64) -> Result<Option<Self>> {
        if Of::IS_RARE && lstat(&root.join(Of::SUBDIRECTORY)) == Err(Errno::ENOENT) {
            return Ok(None);
        }
        match Directory::state(root, Of::SUBDIRECTORY)? {
            Some(directory) => Self::opened(&directory, root, host_netns_cookie, OpenMode::Change),
            None => Ok(None),
        }
    }

    /// Opens the indexes of all network namespaces, without their locks.
    pub(crate) fn all(root: &Path) -> Result<Vec<Self>> {
        let Some(directory) = Directory::state(root, Of::SUBDIRECTORY)? else { return Ok(Vec::new()) };
        let cookies = directory.names()?.into_iter().filter_map(|name| u64::from_str_radix(&name, 16).ok());
        cookies.filter_map(|cookie| Self::opened(&directory, root, cookie, OpenMode::Change).transpose()).collect()
    }

    fn opened(directory: &Directory, root: &Path, host_netns_cookie: u64, how: OpenMode) -> Result<Option<Self>> {
        let name = format!("{host_netns_cookie:016x}");
        let path = directory.path_of(&name);
        let opened = directory.file(&name, how)?;
        Ok(opened.map(|file| Self { file, path, root: root.to_owned(), is_new: Cell::new(true), of: PhantomData }))
    }

    /// Waits for the lock of the index.
    pub fn lock(self, deadline: Instant) -> Result<Self> {
        lock_before(&self.file, &self.path, deadline)?;
        Ok(self)
    }

    /// True if nothing was ever written. The file is never shortened, so a file with entries never looks new.
    pub fn is_new(&self) -> Result<bool> {
        if self.is_new.get() {
            let length = self.file.metadata().map_err(|error| StateError::io("stat", &self.path, error))?.len();
            self.is_new.set(length == 0);
        }
        Ok(self.is_new.get())
    }

    /// Reads slots.
    pub(crate) fn slots(&self, at: u64, count: usize) -> Result<Vec<SlotHolder>> {
        let mut bytes = vec![0; count * SLOT];
        self.read(&mut bytes, at)?;
        Ok(bytes.chunks_exact(SLOT).map(holder).collect())
    }

    /// Writes slots.
    pub(crate) fn set_slots(&self, at: u64, holders: &[SlotHolder]) -> Result<()> {
        self.write(&holders.iter().flat_map(slot).collect::<Vec<u8>>(), at)
    }

    /// Reads bytes. Bytes that were never written are 0.
    pub(crate) fn read(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        let mut read = 0;
        while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, at + read as u64) {
                Ok(0) => break,
                Ok(length) => read += length,
                Err(error) => return Err(StateError::io("read", &self.path, error)),
            }
        }
        if read > 0 {
            self.is_new.set(false);
        }
        Ok(())
    }

    pub(crate) fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.file.write_all_at(bytes, at).map_err(|error| StateError::io("write", &self.path, error))
    }
}

fn holder(slot: &[u8]) -> SlotHolder {
    if slot == SEVERAL {
        return SlotHolder::Several;
    }
    if slot.iter().all(|byte| *byte == 0) {
        return SlotHolder::Nobody;
    }
    RecordKey::parse(&encode_string(slot)).map_or(SlotHolder::Several, SlotHolder::One)
}

fn slot(holder: &SlotHolder) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    match holder {
        SlotHolder::Nobody => slot,
        // A file name of Postern 0.1 is shorter, and does not fill a slot.
        SlotHolder::One(key) if decode(key.file_name(), &mut slot).is_ok_and(|bytes| bytes.len() == SLOT) => slot,
        SlotHolder::One(_) | SlotHolder::Several => SEVERAL,
    }
}
