//! An index of the addresses in records: which attachments may have an address.
//!
//! The truth is in the records. The index only says which of them to ask, so that an ADD behind a native plugin need not
//! read all. An entry may be out of date: then the record that it names is gone, or has no such address. A place is used
//! again when the record of its entry is gone.
//!
//! One file for each network namespace of the host, `<root>/addresses/<cookie>`. It is there from the first question on.
//! Who asks first makes the file, and then reads all records: a run that finds no file after it wrote its record is
//! among these. A page at the beginning says whether all of them are in the index. A bucket of four entries follows for
//! each remainder of an address. Neighbours are side by side, so a network takes few pages of the sparse file.

use crate::dir::OpenMode;
use crate::error::{Result, StateError};
use crate::files::{Directory, digest, lock_before};
use crate::host_ports::{Holder, SLOT, holder, slot};
use crate::record::{self, RecordKey};
use std::fs::File;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

const SUBDIRECTORY: &str = "addresses";
/// The entries of a bucket.
const ENTRIES: usize = 4;
const BUCKET: usize = ENTRIES * SLOT;
/// The room of the first page.
const HEAD: u64 = 4096;
/// The first byte of an index that has all records.
const COMPLETE: u8 = 1;

/// The index of one network namespace.
#[derive(Debug)]
pub struct AddressIndex {
    file: File,
    path: PathBuf,
    root: PathBuf,
}

impl AddressIndex {
    /// Opens the index and waits for its lock; `None` if nothing has asked for it yet.
    ///
    /// # Errors
    /// [`StateError::Locked`] at the deadline, [`StateError::Untrusted`], [`StateError::Io`].
    pub fn find(root: &Path, host_netns_cookie: u64, deadline: Instant) -> Result<Option<Self>> {
        match Directory::state(root, SUBDIRECTORY, false)? {
            Some(directory) => {
                let opened = Self::opened(&directory, root, host_netns_cookie, OpenMode::Change)?;
                opened.map(|opened| opened.lock(deadline)).transpose()
            }
            None => Ok(None),
        }
    }

    /// As [`AddressIndex::find`], without its lock: for a look that decides nothing.
    ///
    /// # Errors
    /// [`StateError::Untrusted`], [`StateError::Io`].
    pub fn unlocked(root: &Path, host_netns_cookie: u64) -> Result<Option<Self>> {
        match Directory::state(root, SUBDIRECTORY, false)? {
            Some(directory) => Self::opened(&directory, root, host_netns_cookie, OpenMode::Change),
            None => Ok(None),
        }
    }

    /// Waits for its lock.
    ///
    /// # Errors
    /// [`StateError::Locked`] at the deadline, [`StateError::Io`].
    pub fn lock(self, deadline: Instant) -> Result<Self> {
        lock_before(&self.file, &self.path, deadline)?;
        Ok(self)
    }

    /// As [`AddressIndex::find`], and makes it if it is absent. Records have to be read after this.
    ///
    /// # Errors
    /// As [`AddressIndex::find`].
    pub fn open(root: &Path, host_netns_cookie: u64, deadline: Instant) -> Result<Self> {
        let absent = || StateError::io("open", root.join(SUBDIRECTORY), nix::errno::Errno::ENOENT);
        let directory = Directory::state(root, SUBDIRECTORY, true)?.ok_or_else(absent)?;
        let how = OpenMode::ChangeOrCreate(0o600);
        Self::opened(&directory, root, host_netns_cookie, how)?.ok_or_else(absent)?.lock(deadline)
    }

    fn opened(directory: &Directory, root: &Path, host_netns_cookie: u64, how: OpenMode) -> Result<Option<Self>> {
        let name = format!("{host_netns_cookie:016x}");
        let path = directory.path_of(&name);
        let file = match directory.dir.file(&name, how) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StateError::io("open", &path, error)),
        };
        Ok(Some(Self { file, path, root: root.to_owned() }))
    }

    /// True if the addresses of all records are in it.
    ///
    /// # Errors
    /// [`StateError::Io`].
    pub fn is_complete(&self) -> Result<bool> {
        let mut head = [0];
        self.read(&mut head, 0)?;
        Ok(head == [COMPLETE])
    }

    /// Notes that the addresses of all records are in it.
    ///
    /// # Errors
    /// [`StateError::Io`].
    pub fn set_complete(&self) -> Result<()> {
        self.write(&[COMPLETE], 0)
    }

    /// Returns the records that may have an address; `None` if all records have to be asked.
    ///
    /// # Errors
    /// [`StateError::Io`].
    pub fn candidates(&self, address: IpAddr) -> Result<Option<Vec<RecordKey>>> {
        let mut keys = Vec::new();
        for entry in self.bucket(address)? {
            match entry {
                Holder::Nobody => {}
                Holder::One(key) => keys.push(key),
                Holder::Several => return Ok(None),
            }
        }
        Ok(Some(keys))
    }

    /// Notes that a record may have an address.
    ///
    /// # Errors
    /// [`StateError::Io`]: then the record must not get the address.
    pub fn note(&self, address: IpAddr, key: &RecordKey) -> Result<()> {
        let bucket = self.bucket(address)?;
        if bucket.iter().any(|entry| *entry == Holder::Several || *entry == Holder::One(*key)) {
            return Ok(());
        }
        let mut free = bucket.iter().position(|entry| *entry == Holder::Nobody);
        for (index, entry) in bucket.iter().enumerate().filter(|_| free.is_none()) {
            if let Holder::One(other) = entry
                && !record::exists(&self.root, other)?
            {
                free = Some(index);
                break;
            }
        }
        let (index, entry) = free.map_or((0, Holder::Several), |index| (index, Holder::One(*key)));
        self.write(&slot(&entry), place(address) + (index * SLOT) as u64)
    }

    fn bucket(&self, address: IpAddr) -> Result<Vec<Holder>> {
        let mut bytes = [0; BUCKET];
        self.read(&mut bytes, place(address))?;
        Ok(bytes.chunks_exact(SLOT).map(holder).collect())
    }

    /// Reads bytes. Those that were never written are 0.
    fn read(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        let mut read = 0;
        while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, at + read as u64) {
                Ok(0) => break,
                Ok(length) => read += length,
                Err(error) => return Err(StateError::io("read", &self.path, error)),
            }
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.file.write_all_at(bytes, at).map_err(|error| StateError::io("write", &self.path, error))
    }
}

/// Returns the place of an address's bucket: the last 16 bits count on from a place of their network.
fn place(address: IpAddr) -> u64 {
    let bytes = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let (network, [high, low]) = bytes.split_last_chunk().unwrap_or((&[], &[0, 0]));
    let first = digest(&[network]).first_chunk().copied().map_or(0, u16::from_be_bytes);
    HEAD + u64::from(first.wrapping_add(u16::from_be_bytes([*high, *low]))) * BUCKET as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::tests::Scratch;
    use crate::{Header, Record};
    use serde_json::Value;
    use std::collections::HashSet;
    use std::time::Duration;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(200)
    }

    fn key(container: usize) -> RecordKey {
        RecordKey::new(7, "n", &container.to_string(), "eth0")
    }

    fn record(root: &Path, container: usize) -> Record<Value> {
        let header = Header {
            network: "n".to_owned(),
            container_id: container.to_string(),
            ifname: "eth0".to_owned(),
            boot_id: "boot".to_owned(),
            host_netns_cookie: 7,
            netns_cookie: None,
            netns_path: String::new(),
            created: 0,
        };
        Record::open_or_create(root, &header, soon()).unwrap()
    }

    #[test]
    fn entries_are_read_back() {
        let scratch = Scratch::new();
        let root = scratch.path("state");
        let address: IpAddr = "10.9.0.2".parse().unwrap();
        assert!(AddressIndex::find(&root, 7, soon()).unwrap().is_none());
        let index = AddressIndex::open(&root, 7, soon()).unwrap();
        assert!(!index.is_complete().unwrap());
        index.set_complete().unwrap();
        assert_eq!(index.candidates(address).unwrap(), Some(Vec::new()));
        for number in [1, 2, 1] {
            index.note(address, &key(number)).unwrap();
        }
        index.note("fd00::9".parse().unwrap(), &key(3)).unwrap();
        assert_eq!(index.candidates(address).unwrap(), Some(vec![key(1), key(2)]));
        assert_eq!(index.candidates("10.9.0.3".parse().unwrap()).unwrap(), Some(Vec::new()));
        assert!(matches!(AddressIndex::find(&root, 7, soon()), Err(StateError::Locked { .. })));
        drop(index);
        let again = AddressIndex::find(&root, 7, soon()).unwrap().unwrap();
        assert!(again.is_complete().unwrap());
        assert_eq!(again.candidates("fd00::9".parse().unwrap()).unwrap(), Some(vec![key(3)]));
        assert!(AddressIndex::find(&root, 8, soon()).unwrap().is_none(), "another namespace");
    }

    /// Entries of records that are gone make room. Without room, all records have to be asked.
    #[test]
    fn a_full_bucket_loses_nobody() {
        let scratch = Scratch::new();
        let root = scratch.path("state");
        let address: IpAddr = "10.9.0.2".parse().unwrap();
        let mut records: Vec<_> = (0..ENTRIES).map(|number| record(&root, number)).collect();
        let index = AddressIndex::open(&root, 7, soon()).unwrap();
        for number in 0..ENTRIES {
            index.note(address, &key(number)).unwrap();
        }
        assert!(records.remove(2).remove_file().unwrap());
        index.note(address, &key(9)).unwrap();
        assert_eq!(index.candidates(address).unwrap(), Some(vec![key(0), key(1), key(9), key(3)]));
        records.push(record(&root, 9));
        index.note(address, &key(10)).unwrap();
        assert_eq!(index.candidates(address).unwrap(), None);
        index.note(address, &key(10)).unwrap();
        assert_eq!(index.candidates("10.9.0.3".parse().unwrap()).unwrap(), Some(Vec::new()));
    }

    #[test]
    fn neighbours_have_buckets_of_their_own() {
        let of = |text: String| place(text.parse().unwrap());
        let some: HashSet<u64> = (0..4000).map(|n| of(format!("10.9.{}.{}", n / 256, n % 256))).collect();
        assert_eq!(some.len(), 4000);
        let more: HashSet<u64> = (0..4000).map(|n| of(format!("fd00::{n:x}"))).collect();
        assert_eq!(more.len(), 4000);
        let many: HashSet<u64> = (0..100).map(|n| of(format!("10.{n}.0.2"))).collect();
        assert!(many.len() > 95, "{}", many.len());
        let end = HEAD + (1 << 16) * BUCKET as u64;
        assert!(some.iter().chain(&more).chain(&many).all(|place| (HEAD..end).contains(place)));
    }
}
