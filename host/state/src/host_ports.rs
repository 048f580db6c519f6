//! An index of the node's ports that lead to containers: which attachment has a port.
//!
//! The truth is in the records. The index only says which record to ask, so that an ADD need not read all of them. An
//! entry may be out of date: then the record that it names is gone, or lists no such port. Nothing is removed from it.
//!
//! One file for each network namespace of the host, `<root>/ports/<cookie>`, with one slot for each protocol and port.
//! It is sparse: only the blocks of ports that were used take room. Its lock is held from the question to the answer:
//! of two ADDs for one port, the second finds the record of the first.

use crate::dir::OpenMode;
use crate::error::{Result, StateError};
use crate::files::{Directory, lock_before};
use crate::record::RecordKey;
use base16ct::lower::encode_string as hex;
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

const SUBDIRECTORY: &str = "ports";
/// The bytes of a slot: a record's key, as its file's name has it.
pub(crate) const SLOT: usize = 24;
const PORTS: u64 = 1 << 16;
/// A slot of a port that several attachments have.
const SEVERAL: [u8; SLOT] = [0xff; SLOT];

/// The entry of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// No attachment had the port, or none since this file was made.
    Nobody,
    /// At most this one has it.
    One(RecordKey),
    /// Any number of attachments have it: all records have to be asked.
    Several,
}

/// The index of one network namespace.
#[derive(Debug)]
pub struct HostPorts {
    file: File,
    path: PathBuf,
    is_new: Cell<bool>,
}

impl HostPorts {
    /// Opens the index, or begins it, and waits for its lock.
    ///
    /// # Errors
    /// [`StateError::Locked`] at the deadline, [`StateError::Untrusted`], [`StateError::Io`].
    pub fn open(root: &Path, host_netns_cookie: u64, deadline: Instant) -> Result<Self> {
        let absent = || StateError::io("open", root.join(SUBDIRECTORY), nix::errno::Errno::ENOENT);
        let directory = Directory::state(root, SUBDIRECTORY, true)?.ok_or_else(absent)?;
        let how = OpenMode::ChangeOrCreate(0o600);
        Self::opened(&directory, host_netns_cookie, how)?.ok_or_else(absent)?.lock(deadline)
    }

    /// Opens the index without its lock: for a look that decides nothing. `None` if there is none.
    ///
    /// # Errors
    /// [`StateError::Untrusted`], [`StateError::Io`].
    pub fn unlocked(root: &Path, host_netns_cookie: u64) -> Result<Option<Self>> {
        match Directory::state(root, SUBDIRECTORY, false)? {
            Some(directory) => Self::opened(&directory, host_netns_cookie, OpenMode::Change),
            None => Ok(None),
        }
    }

    fn opened(directory: &Directory, host_netns_cookie: u64, how: OpenMode) -> Result<Option<Self>> {
        let name = format!("{host_netns_cookie:016x}");
        let path = directory.path_of(&name);
        match directory.dir.file(&name, how) {
            Ok(file) => Ok(Some(Self { file, path, is_new: Cell::new(true) })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StateError::io("open", &path, error)),
        }
    }

    /// Waits for its lock.
    ///
    /// # Errors
    /// [`StateError::Locked`] at the deadline, [`StateError::Io`].
    pub fn lock(self, deadline: Instant) -> Result<Self> {
        lock_before(&self.file, &self.path, deadline)?;
        // Nothing shortens the file: one that had entries before has them now.
        if self.is_new.get() {
            let length = self.file.metadata().map_err(|error| StateError::io("stat", &self.path, error))?.len();
            self.is_new.set(length == 0);
        }
        Ok(self)
    }

    /// True if no attachment is in it yet: records of earlier versions, or before a loss of the file, are not either.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new.get()
    }

    /// Returns the entries of consecutive ports of a protocol, by its number in IP headers.
    ///
    /// # Errors
    /// [`StateError::Io`].
    pub fn holders(&self, protocol: u8, first: u16, count: u16) -> Result<Vec<Holder>> {
        let mut bytes = vec![0; usize::from(count) * SLOT];
        let mut read = 0;
        while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
            let at = place(protocol, first) + read as u64;
            match self.file.read_at(rest, at).map_err(|error| StateError::io("read", &self.path, error))? {
                // Behind the end of the file nothing was ever written.
                0 => break,
                length => read += length,
            }
        }
        if read > 0 {
            self.is_new.set(false);
        }
        Ok(bytes.chunks_exact(SLOT).map(holder).collect())
    }

    /// Writes the entries of consecutive ports.
    ///
    /// # Errors
    /// [`StateError::Io`]: then nothing may be made.
    pub fn set(&self, protocol: u8, first: u16, holders: &[Holder]) -> Result<()> {
        let bytes: Vec<u8> = holders.iter().flat_map(slot).collect();
        self.file
            .write_all_at(&bytes, place(protocol, first))
            .map_err(|error| StateError::io("write", &self.path, error))
    }
}

fn place(protocol: u8, port: u16) -> u64 {
    (u64::from(protocol) * PORTS + u64::from(port)) * SLOT as u64
}

pub(crate) fn holder(slot: &[u8]) -> Holder {
    if slot == SEVERAL {
        return Holder::Several;
    }
    if slot.iter().all(|byte| *byte == 0) {
        return Holder::Nobody;
    }
    RecordKey::parse(&hex(slot)).map_or(Holder::Several, Holder::One)
}

pub(crate) fn slot(holder: &Holder) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    match holder {
        Holder::Nobody => {}
        Holder::Several => slot = SEVERAL,
        Holder::One(key) => {
            let name = key.file_name();
            let digits = name.as_bytes().chunks_exact(2).map(|pair| {
                std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()).unwrap_or_default()
            });
            // A name of Postern 0.1 is shorter, and can't be written here.
            if name.len() != 2 * SLOT {
                return SEVERAL;
            }
            slot.iter_mut().zip(digits).for_each(|(to, from)| *to = from);
        }
    }
    slot
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn entries_are_read_back() {
        let root = std::env::temp_dir().join(format!("postern-ports-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let soon = || Instant::now() + Duration::from_millis(200);
        let index = HostPorts::open(&root, 7, soon()).unwrap();
        assert!(index.is_new());
        let key = RecordKey::new(7, "n", "c", "eth0");
        assert_eq!(index.holders(6, 65535, 1).unwrap(), [Holder::Nobody]);
        index.set(6, 80, &[Holder::One(key), Holder::Several]).unwrap();
        assert_eq!(
            index.holders(6, 79, 4).unwrap(),
            [Holder::Nobody, Holder::One(key), Holder::Several, Holder::Nobody]
        );
        assert_eq!(index.holders(17, 80, 1).unwrap(), [Holder::Nobody], "another protocol");
        assert!(matches!(HostPorts::open(&root, 7, soon()), Err(StateError::Locked { .. })));
        drop(index);
        assert!(!HostPorts::open(&root, 7, soon()).unwrap().is_new());
        assert!(HostPorts::open(&root, 8, soon()).unwrap().is_new(), "another namespace");
        std::fs::remove_dir_all(&root).unwrap();
    }
}
