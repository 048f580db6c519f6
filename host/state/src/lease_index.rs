//! An index of leases by owner, so that no call has to read every lease file. The index lies beside the data directory,
//! never inside, because the native plugin reads every file in the data directory.
//!
//! **When it is valid.** The index is a cache of the directory after the last change by Postern. So the index is valid
//! only if no other program has added a file since then. The usual test would compare the directory's mtime with the
//! noted mtime. This test misses changes within one tick of the kernel's clock (up to 10 ms on most kernels). A native
//! plugin that runs directly after Postern leaves the same mtime.
//!
//! So Postern marks the directory after each change, while it still holds the lock that native plugins take too. It
//! *sets the directory's mtime to a second ago*, and notes this mtime and the resulting ctime in the index. These two
//! times are the mark. Every change of entries, by any program, sets mtime and ctime to the same current time. In the
//! mark the two times differ. So if a directory has both noted times, no entry was added or removed. A missing index
//! entry then proves that an owner has no lease.
//!
//! No clock is compared with another, so steps of the clock don't matter. No program can set ctime, so a restored
//! backup doesn't look like the mark. If a file system can't store the mark (coarser times), nothing is noted. Without
//! a valid mark the directory is read once and the index built anew. A crash of Postern between a change and the mark
//! has the same result.
//!
//! One change is not detected: a program rewrites a file in place without the lock. No known program does this, and
//! each hit is compared with the file.
//!
//! A valid index is complete, and an invalid index is made anew. A lookup finds all leases of an owner. So DEL also
//! releases a second lease that a native plugin added. The price: after a change by another program one call reads all
//! leases, as the native plugin does on every call.
//!
//! **Cost.** A hash table in one file: a lookup reads one kilobyte, and a change writes one 64-byte slot and the
//! header. The number of leases does not matter.
//!
//! **Boots.** Each slot of a Postern lease holds the boot in which the lease was made. It also holds the identity of
//! the lease file (inode and time of writing). At the first use after a boot the index is never valid. The directory is
//! read, and leases known to be of an earlier boot are removed: their containers can't be alive. The native plugin's
//! files have no slot with a boot, and stay.

use crate::dir::{Dir, OpenMode};
use crate::error::StateError;
use crate::files::digest;
use crate::lease_dir::{FileId, Time};
use nix::unistd::geteuid;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

const MAGIC: u64 = u64::from_le_bytes(*b"pstnlsi1");
/// Bytes of the header and of each slot.
const UNIT: usize = 64;
/// The number of slots that are read at once.
const RUN: u64 = 16;

/// An owner, by the hash of the lease file's text.
pub(crate) type OwnerHash = [u8; 16];

/// Returns the key of a lease file's text.
pub(crate) fn key_of(text: &str) -> OwnerHash {
    digest(&[text.as_bytes()])
}

/// Returns a boot ID as 64 bits, never 0.
pub(crate) fn boot_number(boot_id: &str) -> u64 {
    u64::from_le_bytes(digest(&[boot_id.as_bytes()])).max(1)
}

/// The directory's times after Postern's last change, and the boot of that change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryTimes {
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    pub(crate) boot: u64,
}

/// One lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) key: OwnerHash,
    pub(crate) address: IpAddr,
    pub(crate) file: FileId,
    /// The boot in which Postern made the lease; 0 for another program's lease.
    pub(crate) boot: u64,
}

/// The place of an index: a file in a directory. The directory is made when there are entries to keep.
#[derive(Clone, Debug)]
pub(crate) struct IndexPlace {
    pub(crate) root: PathBuf,
    /// The name of the index's file without the ending.
    pub(crate) stem: String,
}

impl IndexPlace {
    fn name(&self) -> String {
        format!("{}.leases", self.stem)
    }
}

/// The index, valid while the directory's lock is held.
pub(crate) enum LeaseIndex {
    /// A valid file.
    Table(LeaseTable),
    /// Entries that were just read from the directory, and are not yet in the file.
    Fresh(Vec<IndexEntry>),
}

pub(crate) struct LeaseTable {
    file: File,
    slots: u64,
    /// The number of used slots: slots of leases, and slots of released leases.
    used: u64,
}

impl LeaseIndex {
    /// Loads the index at `place` if its mark is `now`.
    pub(crate) fn load(place: &IndexPlace, now: &DirectoryTimes) -> Option<Self> {
        let (table, mark) = LeaseTable::read(place).ok()??;
        (mark == *now).then_some(Self::Table(table))
    }

    /// Returns the entries at `place` even if the index is not valid, to keep the notes on boots.
    ///
    /// # Errors
    /// The file exists, but can't be read now. Without the notes, leases of earlier boots would never be free.
    pub(crate) fn notes(place: &IndexPlace) -> Result<Vec<IndexEntry>, StateError> {
        let read = || match LeaseTable::read(place)? {
            Some((table, _)) => table.entries(),
            None => Ok(Vec::new()),
        };
        let failed = |error| StateError::io("read", place.root.join(place.name()), error);
        match read().map_err(failed) {
            Err(error) if error.is_passing() => read().map_err(failed),
            // The file is missing, or is not Postern's.
            read => Ok(read.unwrap_or_default()),
        }
    }

    pub(crate) fn find(&self, key: &OwnerHash) -> io::Result<Vec<IndexEntry>> {
        match self {
            Self::Fresh(entries) => Ok(entries.iter().filter(|entry| entry.key == *key).copied().collect()),
            Self::Table(table) => {
                let live = table.chain(key)?.into_iter().filter_map(|(_, slot)| slot.live());
                Ok(live.filter(|entry| entry.key == *key).collect())
            }
        }
    }

    /// Returns all entries of the index.
    pub(crate) fn entries(&self) -> io::Result<Vec<IndexEntry>> {
        match self {
            Self::Fresh(entries) => Ok(entries.clone()),
            Self::Table(table) => table.entries(),
        }
    }

    pub(crate) fn insert(&mut self, entry: IndexEntry) -> io::Result<()> {
        if let Self::Table(table) = self {
            // The table is three quarters full: the next commit writes a new table without the released leases.
            if (table.used + 1) * 4 <= table.slots * 3 {
                return table.insert(&entry);
            }
            *self = Self::Fresh(table.entries()?);
        }
        if let Self::Fresh(entries) = self {
            entries.push(entry);
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, key: &OwnerHash, address: IpAddr) -> io::Result<()> {
        match self {
            Self::Fresh(entries) => {
                entries.retain(|entry| entry.key != *key || entry.address != address);
                Ok(())
            }
            Self::Table(table) => {
                let is_it = |entry: IndexEntry| entry.key == *key && entry.address == address;
                let place = table.chain(key)?.into_iter().find(|(_, slot)| slot.live().is_some_and(is_it));
                place.map_or(Ok(()), |(number, _)| table.write(number, Slot::Dead))
            }
        }
    }

    /// Writes the index with `mark`, so that it is valid for a directory with these times.
    pub(crate) fn commit(&self, place: &IndexPlace, mark: &DirectoryTimes) -> io::Result<()> {
        match self {
            Self::Table(table) => table.file.write_all_at(&header(mark, table.slots, table.used), 0),
            Self::Fresh(entries) => {
                let new = format!("{}.new", place.stem);
                Dir::open(&place.root)?.replace(&place.name(), &new, &image(entries, mark))
            }
        }
    }
}

impl LeaseTable {
    /// Opens the file; `None` if it is not Postern's.
    fn read(place: &IndexPlace) -> io::Result<Option<(Self, DirectoryTimes)>> {
        let file = Dir::open(&place.root)?.file(&place.name(), OpenMode::Change)?;
        let mut bytes = [0; UNIT];
        match file.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let meta = file.metadata()?;
        // A file that another user could have written is not used, because its content could cause the removal of
        // leases.
        let is_ours = (meta.uid() == 0 || meta.uid() == geteuid().as_raw()) && meta.mode() & 0o022 == 0;
        let length = |slots: u64| slots.checked_add(1)?.checked_mul(UNIT as u64);
        let shape = shape(&bytes).filter(|(slots, ..)| is_ours && Some(meta.len()) == length(*slots));
        Ok(shape.map(|(slots, used, mark)| (Self { file, slots, used }, mark)))
    }

    /// Returns the slots where `key` may be, with their numbers: from its home slot to the first empty slot.
    fn chain(&self, key: &OwnerHash) -> io::Result<Vec<(u64, Slot)>> {
        let mut number = home(key, self.slots);
        let mut left = self.slots;
        let mut chain = Vec::new();
        let mut bytes = [0; UNIT * RUN as usize];
        while left > 0 {
            let run = RUN.min(self.slots - number).min(left);
            let bytes = bytes.get_mut(..UNIT * run as usize).unwrap_or_default();
            self.file.read_exact_at(bytes, position(number))?;
            for (offset, bytes) in bytes.chunks(UNIT).enumerate() {
                chain.push((number + offset as u64, decode(bytes)));
                if matches!(chain.last(), Some((_, Slot::Empty))) {
                    return Ok(chain);
                }
            }
            left -= run;
            number = (number + run) % self.slots;
        }
        Ok(chain)
    }

    fn insert(&mut self, entry: &IndexEntry) -> io::Result<()> {
        let place = self.chain(&entry.key)?.into_iter().find(|(_, slot)| slot.live().is_none());
        let (number, slot) = place.ok_or_else(|| io::Error::other("no room in the index"))?;
        self.used += u64::from(slot == Slot::Empty);
        self.write(number, Slot::Live(*entry))
    }

    fn write(&self, number: u64, slot: Slot) -> io::Result<()> {
        self.file.write_all_at(&encode(slot), position(number))
    }

    fn entries(&self) -> io::Result<Vec<IndexEntry>> {
        // `read` has compared the number of slots with the file's size.
        let mut bytes = vec![0; self.slots as usize * UNIT];
        self.file.read_exact_at(&mut bytes, position(0))?;
        Ok(bytes.chunks(UNIT).filter_map(|slot| decode(slot).live()).collect())
    }
}

/// Reads the file's first bytes: the number of slots, the number of used slots, and the mark. `None` if the file is not
/// Postern's.
fn shape(bytes: &[u8; UNIT]) -> Option<(u64, u64, DirectoryTimes)> {
    let mut fields = Fields(bytes);
    if fields.number()? != MAGIC {
        return None;
    }
    let (slots, used) = (fields.number()?, fields.number()?);
    let mark = DirectoryTimes { mtime: fields.time()?, ctime: fields.time()?, boot: fields.number()? };
    slots.is_power_of_two().then_some((slots, used, mark))
}

/// Returns the first slot for `key` in a table of `slots`.
fn home(key: &OwnerHash, slots: u64) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *key;
    u64::from_le_bytes([a, b, c, d, e, f, g, h]) & slots.saturating_sub(1)
}

fn position(number: u64) -> u64 {
    (number + 1) * UNIT as u64
}

/// Returns the bytes of a table with `entries`, about a third full.
fn image(entries: &[IndexEntry], mark: &DirectoryTimes) -> Vec<u8> {
    let slots = (entries.len() * 3).next_power_of_two().max(64);
    let mut table: Vec<Option<&IndexEntry>> = vec![None; slots];
    for entry in entries {
        let home = home(&entry.key, slots as u64) as usize;
        let free = (home..slots).chain(0..home).find(|number| table.get(*number) == Some(&None));
        if let Some(place) = free.and_then(|number| table.get_mut(number)) {
            *place = Some(entry);
        }
    }
    let mut bytes = header(mark, slots as u64, entries.len() as u64);
    for slot in table {
        bytes.extend(encode(slot.map_or(Slot::Empty, |entry| Slot::Live(*entry))));
    }
    bytes
}

const EMPTY: u8 = 0;
const LIVE: u8 = 1;
const DEAD: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    Empty,
    Dead,
    Live(IndexEntry),
}

impl Slot {
    fn live(self) -> Option<IndexEntry> {
        if let Self::Live(entry) = self { Some(entry) } else { None }
    }
}

fn header(mark: &DirectoryTimes, slots: u64, used: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(UNIT);
    for number in [MAGIC, slots, used] {
        bytes.extend(number.to_le_bytes());
    }
    for (seconds, nanoseconds) in [mark.mtime, mark.ctime] {
        bytes.extend(seconds.to_le_bytes());
        bytes.extend(nanoseconds.to_le_bytes());
    }
    bytes.extend(mark.boot.to_le_bytes());
    bytes.resize(UNIT, 0);
    bytes
}

fn encode(slot: Slot) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(UNIT);
    bytes.push(match slot {
        Slot::Empty => EMPTY,
        Slot::Dead => DEAD,
        Slot::Live(_) => LIVE,
    });
    if let Slot::Live(entry) = slot {
        bytes.push(if entry.address.is_ipv4() { 4 } else { 6 });
        bytes.extend(entry.key);
        bytes.extend(match entry.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        });
        bytes.extend(entry.file.inode.to_le_bytes());
        bytes.extend(entry.file.written.0.to_le_bytes());
        bytes.extend(entry.file.written.1.to_le_bytes());
        bytes.extend(entry.boot.to_le_bytes());
    }
    bytes.resize(UNIT, 0);
    bytes
}

fn decode(bytes: &[u8]) -> Slot {
    match bytes.first() {
        Some(&EMPTY) | None => Slot::Empty,
        Some(&LIVE) => decode_live(bytes).map_or(Slot::Dead, Slot::Live),
        Some(_) => Slot::Dead,
    }
}

fn decode_live(bytes: &[u8]) -> Option<IndexEntry> {
    let mut fields = Fields(bytes.get(1..)?);
    let [family] = fields.take()?;
    let key = fields.take()?;
    let octets: [u8; 16] = fields.take()?;
    let address = match family {
        4 => IpAddr::V4(Ipv6Addr::from(octets).to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED)),
        _ => IpAddr::V6(octets.into()),
    };
    let file = FileId { inode: fields.number()?, written: fields.time()? };
    Some(IndexEntry { key, address, file, boot: fields.number()? })
}

/// A reader of fixed-size little-endian fields, one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk()?;
        self.0 = tail;
        Some(*head)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Option<Time> {
        Some((i64::from_le_bytes(self.take()?), u32::from_le_bytes(self.take()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::tests::Scratch;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn entry(owner: u8, last: u8) -> IndexEntry {
        let address = match last % 2 {
            0 => IpAddr::from([10, 0, 0, last]),
            _ => format!("fd00::{last:x}").parse().unwrap(),
        };
        let file = FileId { inode: u64::from(last), written: (-5, 7) };
        IndexEntry { key: key_of(&owner.to_string()), address, file, boot: u64::MAX }
    }

    const MARK: DirectoryTimes = DirectoryTimes { mtime: (1, 2), ctime: (3, 4), boot: 5 };

    #[test]
    fn slots_and_headers_survive_the_file() {
        for last in 0..4 {
            assert!(decode(&encode(Slot::Live(entry(1, last)))) == Slot::Live(entry(1, last)));
        }
        assert_eq!(header(&MARK, 64, 1).len(), UNIT);
        let scratch = Scratch::new();
        let place = IndexPlace { root: scratch.path(""), stem: "index".to_owned() };
        let path = scratch.path("index.leases");
        LeaseIndex::Fresh(vec![entry(1, 2)]).commit(&place, &MARK).unwrap();
        assert!(LeaseIndex::load(&place, &MARK).is_some());
        for other in [
            DirectoryTimes { boot: 6, ..MARK },
            DirectoryTimes { mtime: (1, 3), ..MARK },
            DirectoryTimes { ctime: (3, 5), ..MARK },
        ] {
            assert!(LeaseIndex::load(&place, &other).is_none());
        }
        assert_eq!(LeaseIndex::notes(&place).unwrap(), [entry(1, 2)]);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        assert!(LeaseIndex::load(&place, &MARK).is_none() && LeaseIndex::notes(&place).unwrap().is_empty());
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for length in [0, 10, UNIT, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..length]).unwrap();
            assert!(LeaseIndex::load(&place, &MARK).is_none(), "{length}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// For any order of changes the file gives the answers of a map, also when it fills up and is written anew.
        #[test]
        fn answers_as_a_map(changes in prop::collection::vec((any::<bool>(), 0u8..60, any::<u8>()), 1..400)) {
            let scratch = Scratch::new();
            let place = IndexPlace { root: scratch.path(""), stem: "index".to_owned() };
            let mut model: HashMap<IpAddr, IndexEntry> = HashMap::new();
            LeaseIndex::Fresh(Vec::new()).commit(&place, &MARK).unwrap();
            for (adds, owner, last) in changes {
                let mut index = LeaseIndex::load(&place, &MARK).unwrap();
                let new = entry(owner, last);
                match model.get(&new.address).copied() {
                    Some(old) => {
                        index.remove(&old.key, old.address).unwrap();
                        model.remove(&old.address);
                    }
                    None if adds => {
                        index.insert(new).unwrap();
                        model.insert(new.address, new);
                    }
                    None => {}
                }
                index.commit(&place, &MARK).unwrap();
            }
            let index = LeaseIndex::load(&place, &MARK).unwrap();
            for owner in 0..60u8 {
                let key = key_of(&owner.to_string());
                let mut found: Vec<_> = index.find(&key).unwrap().iter().map(|entry| entry.address).collect();
                let mut expected: Vec<_> = model.values().filter(|e| e.key == key).map(|e| e.address).collect();
                found.sort();
                expected.sort();
                prop_assert_eq!(found, expected);
            }
            prop_assert_eq!(LeaseIndex::notes(&place).unwrap().len(), model.len());
        }

        #[test]
        fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), UNIT * 64)) {
            let scratch = Scratch::new();
            let place = IndexPlace { root: scratch.path(""), stem: "index".to_owned() };
            let path = scratch.path("index.leases");
            let mut file = header(&MARK, 64, 3);
            file.append(&mut bytes);
            std::fs::write(&path, file).unwrap();
            let mut index = LeaseIndex::load(&place, &MARK).unwrap();
            index.find(&key_of("x")).unwrap();
            let _ = index.insert(entry(1, 1));
            index.remove(&key_of("1"), entry(1, 1).address).unwrap();
        }
    }
}
