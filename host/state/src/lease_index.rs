//! Who holds which address, without reading every lease file: an index beside the data directory, never inside it (the
//! native plugin reads every file in there).
//!
//! **When it may be believed.** It is a cache of the directory as it was after our last change, so the question is whether
//! anybody has added a file since. The usual answer, "the directory's mtime is still the one noted", fails within one tick
//! of the kernel's clock (up to 10 ms on most kernels): a native plugin that comes right after us leaves the same mtime.
//! So after each change, still under the lock that natives take too, *we set the directory's mtime to a second ago* and
//! note it here together with the ctime that this left. Every change of entries, by anybody, at any clock resolution, sets
//! mtime and ctime both to the same current time; our mark has them differ. A directory whose two times are those noted
//! has therefore had no entry added or removed: a missing index entry then proves that an owner has no lease. No clock is
//! compared with another, so steps of the clock don't matter; ctime can't be set by anyone, so a restored backup doesn't
//! look like our mark. If a file system can't hold the mark (coarser times), nothing is noted. Otherwise, including after
//! a crash of ours between a change and the mark, the directory is read once and the index built anew.
//!
//! Not seen is a file whose content is rewritten in place without the lock. No known program does that; a hit is verified
//! against the file anyway.
//!
//! Because an index that can be believed is complete and one that can't is made anew, a lookup never stops at a first hit:
//! a second lease of the same owner, added by a native plugin, isn't left behind by a DEL. The price is that after a
//! change by others one call reads all leases, as the native plugin does on every call.
//!
//! **Cost.** A hash table in one file: a lookup reads one kilobyte, a change writes one 64-byte slot and the header,
//! whatever the number of leases.
//!
//! **Boots.** Each slot of ours tells in which boot the lease was made, and which file (inode and time of writing) it
//! speaks of. At the first use after a boot the index is never believed, the directory is read, and leases known to be of
//! an earlier boot are removed: their containers can't be alive. Files that we know nothing of, the native plugin's, stay.

use crate::dir::{Dir, How};
use crate::files::digest;
use crate::lease_dir::{FileId, Time};
use nix::unistd::geteuid;
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

const MAGIC: u64 = u64::from_le_bytes(*b"pstnlsi1");
/// Bytes of the header and of each slot.
const UNIT: usize = 64;
/// Slots read at once.
const RUN: u64 = 16;

/// An owner, by the hash of the lease file's text.
pub(crate) type Key = [u8; 16];

/// The key of a lease file's text.
pub(crate) fn key_of(text: &str) -> Key {
    let mut key = Key::default();
    for (to, from) in key.iter_mut().zip(digest(&[text.as_bytes()])) {
        *to = from;
    }
    key
}

/// A boot ID in 64 bits, never 0.
pub(crate) fn boot_number(boot_id: &str) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = digest(&[boot_id.as_bytes()]);
    u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(1)
}

/// The directory's times after our last change, and the boot in which that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    pub(crate) boot: u64,
}

/// One lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Key,
    pub(crate) address: IpAddr,
    pub(crate) file: FileId,
    /// The boot in which we made it; 0 if we didn't.
    pub(crate) boot: u64,
}

/// Where an index is: a file of a directory that is made when there is something to keep.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) root: PathBuf,
    /// Its file's name without the ending.
    pub(crate) stem: String,
}

impl Place {
    fn open(&self) -> io::Result<File> {
        Dir::open(&self.root)?.file(&self.name(), How::Change)
    }

    fn name(&self) -> String {
        format!("{}.leases", self.stem)
    }

    /// Put `content` there in one step, over what there is.
    fn replace(&self, content: &[u8]) -> io::Result<()> {
        let temporary = format!("{}.new", self.stem);
        let root = Dir::open(&self.root)?;
        root.file(&temporary, How::Rewrite(0o600))?.write_all(content)?;
        root.rename(&temporary, &self.name())
    }
}

/// The index, good for as long as the directory's lock is held.
pub(crate) enum Index {
    /// The file: believed.
    Table(Table),
    /// What was just read from the directory: not in the file yet.
    Fresh(Vec<Entry>),
}

pub(crate) struct Table {
    file: File,
    slots: u64,
    /// Slots that aren't empty: live ones and those of leases given up.
    used: u64,
}

impl Index {
    /// The index at `place`, if it speaks of a directory that looks like `now`.
    pub(crate) fn load(place: &Place, now: &Mark) -> Option<Self> {
        let (table, mark) = Table::open(place)?;
        (mark == *now).then_some(Self::Table(table))
    }

    /// What is written at `place`, believed or not: the notes on boots survive in this way.
    pub(crate) fn notes(place: &Place) -> Vec<Entry> {
        Table::open(place).and_then(|(table, _)| table.entries().ok()).unwrap_or_default()
    }

    pub(crate) fn find(&self, key: &Key) -> io::Result<Vec<Entry>> {
        match self {
            Self::Fresh(entries) => Ok(entries.iter().filter(|entry| entry.key == *key).copied().collect()),
            Self::Table(table) => {
                let mut found = Vec::new();
                table.probe(key, |_, slot| {
                    if let Slot::Live(entry) = slot
                        && entry.key == *key
                    {
                        found.push(entry);
                    }
                    slot != Slot::Empty
                })?;
                Ok(found)
            }
        }
    }

    /// All that it tells of.
    pub(crate) fn entries(&self) -> io::Result<Vec<Entry>> {
        match self {
            Self::Fresh(entries) => Ok(entries.clone()),
            Self::Table(table) => table.entries(),
        }
    }

    pub(crate) fn insert(&mut self, entry: Entry) -> io::Result<()> {
        if let Self::Table(table) = self {
            // Three quarters full: the next commit writes a new table without the leases given up.
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

    pub(crate) fn remove(&mut self, key: &Key, address: IpAddr) -> io::Result<()> {
        match self {
            Self::Fresh(entries) => {
                entries.retain(|entry| entry.key != *key || entry.address != address);
                Ok(())
            }
            Self::Table(table) => {
                let mut place = None;
                table.probe(key, |number, slot| {
                    if matches!(slot, Slot::Live(entry) if entry.key == *key && entry.address == address) {
                        place = Some(number);
                    }
                    place.is_none() && slot != Slot::Empty
                })?;
                place.map_or(Ok(()), |number| table.write(number, &encode(DEAD, None)))
            }
        }
    }

    /// Make the index the one that speaks of a directory that looks like `mark`.
    pub(crate) fn commit(&self, place: &Place, mark: &Mark) -> io::Result<()> {
        match self {
            Self::Table(table) => table.file.write_all_at(&header(mark, table.slots, table.used), 0),
            Self::Fresh(entries) => place.replace(&image(entries, mark)),
        }
    }
}

impl Table {
    fn open(place: &Place) -> Option<(Self, Mark)> {
        let file = place.open().ok()?;
        let mut bytes = [0; UNIT];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let mut fields = Fields(&bytes);
        if fields.number()? != MAGIC {
            return None;
        }
        let (slots, used) = (fields.number()?, fields.number()?);
        let mark = Mark { mtime: fields.time()?, ctime: fields.time()?, boot: fields.number()? };
        let whole = slots.checked_add(1)?.checked_mul(UNIT as u64)?;
        let meta = file.metadata().ok()?;
        // What somebody else could have written isn't believed: it could have leases removed.
        let is_ours = (meta.uid() == 0 || meta.uid() == geteuid().as_raw()) && meta.mode() & 0o022 == 0;
        (slots.is_power_of_two() && meta.len() == whole && is_ours).then_some((Self { file, slots, used }, mark))
    }

    /// Show the slots at which `key` may be to `more`, until it has seen enough.
    fn probe(&self, key: &Key, mut more: impl FnMut(u64, Slot) -> bool) -> io::Result<()> {
        let mut number = home(key, self.slots);
        let mut left = self.slots;
        let mut bytes = [0; UNIT * RUN as usize];
        while left > 0 {
            let run = RUN.min(self.slots - number).min(left);
            let bytes = bytes.get_mut(..UNIT * run as usize).unwrap_or_default();
            self.file.read_exact_at(bytes, position(number))?;
            for (offset, bytes) in bytes.chunks(UNIT).enumerate() {
                if !more(number + offset as u64, decode(bytes)) {
                    return Ok(());
                }
            }
            left -= run;
            number = (number + run) % self.slots;
        }
        Ok(())
    }

    fn insert(&mut self, entry: &Entry) -> io::Result<()> {
        let mut place = None;
        self.probe(&entry.key, |number, slot| {
            if !matches!(slot, Slot::Live(_)) {
                place = Some((number, slot));
            }
            place.is_none()
        })?;
        let (number, slot) = place.ok_or_else(|| io::Error::other("no room in the index"))?;
        self.used += u64::from(slot == Slot::Empty);
        self.write(number, &encode(LIVE, Some(entry)))
    }

    fn write(&self, number: u64, slot: &[u8]) -> io::Result<()> {
        self.file.write_all_at(slot, position(number))
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        // `open` has compared the number of slots with the file's size.
        let mut bytes = vec![0; self.slots as usize * UNIT];
        self.file.read_exact_at(&mut bytes, position(0))?;
        let live = |bytes| match decode(bytes) {
            Slot::Live(entry) => Some(entry),
            Slot::Empty | Slot::Dead => None,
        };
        Ok(bytes.chunks(UNIT).filter_map(live).collect())
    }
}

/// Where `key` would be in a table of `slots`.
fn home(key: &Key, slots: u64) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *key;
    u64::from_le_bytes([a, b, c, d, e, f, g, h]) & slots.saturating_sub(1)
}

fn position(number: u64) -> u64 {
    (number + 1) * UNIT as u64
}

/// A whole table with `entries`, about a third full.
fn image(entries: &[Entry], mark: &Mark) -> Vec<u8> {
    let slots = (entries.len() * 3).next_power_of_two().max(64);
    let mut table: Vec<Option<&Entry>> = vec![None; slots];
    for entry in entries {
        let home = home(&entry.key, slots as u64) as usize;
        let free = (home..slots).chain(0..home).find(|number| table.get(*number).is_some_and(Option::is_none));
        if let Some(place) = free.and_then(|number| table.get_mut(number)) {
            *place = Some(entry);
        }
    }
    let mut bytes = header(mark, slots as u64, entries.len() as u64);
    for slot in table {
        bytes.extend(encode(if slot.is_some() { LIVE } else { EMPTY }, slot));
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
    Live(Entry),
}

fn header(mark: &Mark, slots: u64, used: u64) -> Vec<u8> {
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

fn encode(state: u8, entry: Option<&Entry>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(UNIT);
    bytes.push(state);
    if let Some(entry) = entry {
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

fn decode_live(bytes: &[u8]) -> Option<Entry> {
    let mut fields = Fields(bytes.get(1..)?);
    let [family] = fields.take()?;
    let key = fields.take()?;
    let octets: [u8; 16] = fields.take()?;
    let address = match family {
        4 => IpAddr::V4(Ipv6Addr::from(octets).to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED)),
        _ => IpAddr::V6(octets.into()),
    };
    let file = FileId { inode: fields.number()?, written: fields.time()? };
    Some(Entry { key, address, file, boot: fields.number()? })
}

/// Fixed-size little-endian fields, one after the other.
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

    fn entry(owner: u8, last: u8) -> Entry {
        let address = match last % 2 {
            0 => IpAddr::from([10, 0, 0, last]),
            _ => format!("fd00::{last:x}").parse().unwrap(),
        };
        let file = FileId { inode: u64::from(last), written: (-5, 7) };
        Entry { key: key_of(&owner.to_string()), address, file, boot: u64::MAX }
    }

    const MARK: Mark = Mark { mtime: (1, 2), ctime: (3, 4), boot: 5 };

    #[test]
    fn slots_and_headers_survive_the_file() {
        for last in 0..4 {
            assert!(decode(&encode(LIVE, Some(&entry(1, last)))) == Slot::Live(entry(1, last)));
        }
        assert_eq!(header(&MARK, 64, 1).len(), UNIT);
        let scratch = Scratch::new();
        let place = Place { root: scratch.path(""), stem: "index".to_owned() };
        let path = scratch.path("index.leases");
        Index::Fresh(vec![entry(1, 2)]).commit(&place, &MARK).unwrap();
        assert!(Index::load(&place, &MARK).is_some());
        for other in [Mark { boot: 6, ..MARK }, Mark { mtime: (1, 3), ..MARK }, Mark { ctime: (3, 5), ..MARK }] {
            assert!(Index::load(&place, &other).is_none());
        }
        assert_eq!(Index::notes(&place), [entry(1, 2)]);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        assert!(Index::load(&place, &MARK).is_none() && Index::notes(&place).is_empty());
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for length in [0, 10, UNIT, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..length]).unwrap();
            assert!(Index::load(&place, &MARK).is_none(), "{length}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Whatever the order of changes, the file answers as a map does, also when it fills up and is written anew.
        #[test]
        fn answers_as_a_map(changes in prop::collection::vec((any::<bool>(), 0u8..60, any::<u8>()), 1..400)) {
            let scratch = Scratch::new();
            let place = Place { root: scratch.path(""), stem: "index".to_owned() };
            let mut model: HashMap<IpAddr, Entry> = HashMap::new();
            Index::Fresh(Vec::new()).commit(&place, &MARK).unwrap();
            for (adds, owner, last) in changes {
                let mut index = Index::load(&place, &MARK).unwrap();
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
            let index = Index::load(&place, &MARK).unwrap();
            for owner in 0..60u8 {
                let key = key_of(&owner.to_string());
                let mut found: Vec<_> = index.find(&key).unwrap().iter().map(|entry| entry.address).collect();
                let mut expected: Vec<_> = model.values().filter(|e| e.key == key).map(|e| e.address).collect();
                found.sort();
                expected.sort();
                prop_assert_eq!(found, expected);
            }
            prop_assert_eq!(Index::notes(&place).len(), model.len());
        }

        #[test]
        fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), UNIT * 64)) {
            let scratch = Scratch::new();
            let place = Place { root: scratch.path(""), stem: "index".to_owned() };
            let path = scratch.path("index.leases");
            let mut file = header(&MARK, 64, 3);
            file.append(&mut bytes);
            std::fs::write(&path, file).unwrap();
            let mut index = Index::load(&place, &MARK).unwrap();
            index.find(&key_of("x")).unwrap();
            let _ = index.insert(entry(1, 1));
            index.remove(&key_of("1"), entry(1, 1).address).unwrap();
        }
    }
}
