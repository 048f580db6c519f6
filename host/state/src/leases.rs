//! IP leases in the native host-local plugin's directory: reserve, release, find, and retain the valid leases.
//!
//! One call takes the lock once. `lease_dir` handles the files, and `lease_index` finds an owner's files without
//! reading all files. Postern differs from the native plugin in one point. A failed call gives back only the addresses
//! that it took, and leaves the round robin unchanged.

mod held;

pub use held::{HeldAddress, networks};

use crate::dir::Dir;
use crate::error::{Result, StateError};
use crate::files::digest;
use crate::lease_dir::{FileId, LeaseDir, Slot};
use crate::lease_index::{DirectoryTimes, IndexEntry, IndexPlace, LeaseIndex, OwnerHash, boot_number, key_of};
use base16ct::lower::encode_string;
use ipnet::IpNet;
use postern_types::{Range, RangeSet};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Instant;

/// The owner of a lease. A lease of very old native plugins names no interface. The owner's `ifname` is then empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseOwner {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
}

impl LeaseOwner {
    /// Makes the owner of `ifname` in `container_id`.
    pub fn new(container_id: impl Into<String>, ifname: impl Into<String>) -> Self {
        Self { container_id: container_id.into(), ifname: ifname.into() }
    }

    /// Returns the text in a lease file of this owner.
    #[must_use]
    pub fn text(&self) -> String {
        text_of(&self.container_id, &self.ifname)
    }

    /// Returns the text in a lease file of a very old native plugin.
    #[must_use]
    pub fn old_text(&self) -> &str {
        self.container_id.trim()
    }

    fn of(text: &str) -> Self {
        let (container_id, ifname) = text.split_once("\r\n").unwrap_or((text, ""));
        Self::new(container_id, ifname)
    }
}

/// Returns the text in the lease file of an owner.
fn text_of(container_id: &str, ifname: &str) -> String {
    [container_id.trim(), "\r\n", ifname].concat()
}

/// An address that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenAddress {
    /// The address with its subnet's prefix length.
    pub address: IpNet,
    /// The gateway of the address's range.
    pub gateway: Option<IpAddr>,
    /// The index of the address's range set.
    pub set: usize,
}

/// The directory of a network's leases, and the directory of the index.
#[derive(Clone, Debug)]
pub struct LeaseStore {
    /// host-local's `dataDir`.
    pub data_dir: PathBuf,
    /// The network's name.
    pub network: String,
    /// The directory of the indexes. It must survive a reboot, so that leases of an earlier boot are recognised.
    pub index_root: PathBuf,
    /// The value of [`crate::boot_id`].
    pub boot_id: String,
}

/// The leases of one network.
///
/// Functions with a deadline fail with [`StateError::Locked`] if the lock is not free in time, and with
/// [`StateError::Io`].
pub struct Leases {
    directory: LeaseDir,
    index: IndexPlace,
    boot: u64,
}

impl Leases {
    /// Opens the leases of a network, and makes the directory if absent (as the native plugin does).
    ///
    /// # Errors
    /// [`StateError::Untrusted`] if another user can write to the directory, [`StateError::Io`].
    pub fn open(store: &LeaseStore) -> Result<Self> {
        let directory = LeaseDir::open(&store.data_dir, &store.network, true)?;
        let path = || store.data_dir.join(&store.network);
        let vanished =
            || StateError::untrusted(&path(), "the directory was removed while this run opened it; try again");
        directory.map(|directory| Self::with(store, directory)).ok_or_else(vanished)
    }

    /// As [`Leases::open`]; `None` if the directory is missing, so that there is no lease.
    pub fn open_existing(store: &LeaseStore) -> Result<Option<Self>> {
        let directory = LeaseDir::open(&store.data_dir, &store.network, false)?;
        Ok(directory.map(|directory| Self::with(store, directory)))
    }

    fn with(store: &LeaseStore, directory: LeaseDir) -> Self {
        let place: [u8; 16] = digest(&[store.data_dir.as_os_str().as_encoded_bytes(), store.network.as_bytes()]);
        let index = IndexPlace { root: store.index_root.clone(), stem: encode_string(&place) };
        Self { directory, index, boot: boot_number(&store.boot_id) }
    }

    /// Takes one address from each set, or no address at all. If an address of `requested` lies in a set, takes this
    /// address. Otherwise takes the next free address by round robin. Addresses in `avoided` are not free.
    ///
    /// # Errors
    /// [`StateError::Exhausted`] and [`StateError::Refused`] with the native plugin's texts.
    pub fn reserve_others(
        &self,
        owner: &LeaseOwner,
        sets: &[RangeSet],
        requested: &[IpAddr],
        avoided: &[IpAddr],
        deadline: Instant,
    ) -> Result<Vec<TakenAddress>> {
        // Each requested address is looked for in each set while other processes wait for the lock. So a longer list is
        // refused, with the native plugin's text.
        if requested.len() > 2 * sets.len() + 16 {
            let (requested, sets) = (requested.len(), sets.len());
            return Err(StateError::Refused(format!("{requested} addresses are requested of {sets} range sets")));
        }
        let mut session = self.lock(deadline)?;
        let mut taken = Vec::new();
        let outcome = session.reserve_all(owner, sets, (requested, avoided), deadline, &mut taken);
        if let Err(error) = &outcome {
            // After an error of another kind the content of the directory is unknown.
            session.intact &= matches!(error, StateError::Refused(_) | StateError::Exhausted(_));
            for (ip, _) in taken.drain(..) {
                // The first failure is reported. A remaining file belongs to this owner, and the owner's DEL removes
                // the file.
                session.intact &= self.directory.remove(ip).is_ok();
            }
        }
        let key = key_of(&owner.text());
        for (address, file) in taken {
            session.intact &= session.index.insert(IndexEntry { key, address, file, boot: self.boot }).is_ok();
        }
        session.finish();
        outcome
    }

    /// Releases all addresses of `owner`. If the owner has no address, releases the addresses of old lease files that
    /// name only its container. Returns the released addresses; an empty list is no error.
    pub fn release(&self, owner: &LeaseOwner, deadline: Instant) -> Result<Vec<IpAddr>> {
        let mut session = self.lock(deadline)?;
        let (text, held) = session.find_all_of(owner)?;
        for ip in &held {
            self.directory.remove(*ip)?;
            session.forget(&text, *ip);
        }
        session.finish();
        Ok(held)
    }

    /// Releases the given addresses that `owner` holds, after a failed call has taken them. Other addresses of the
    /// owner stay.
    pub fn release_addresses(&self, owner: &LeaseOwner, addresses: &[IpAddr], deadline: Instant) -> Result<()> {
        let mut session = self.lock(deadline)?;
        let text = owner.text();
        for ip in session.find(&text)? {
            if addresses.contains(&ip) {
                self.directory.remove(ip)?;
                session.forget(&text, ip);
            }
        }
        session.finish();
        Ok(())
    }

    /// Returns the addresses of `owner`. If the owner has no address, returns the addresses of old lease files that
    /// name only its container.
    pub fn held(&self, owner: &LeaseOwner, deadline: Instant) -> Result<Vec<IpAddr>> {
        let mut session = self.lock(deadline)?;
        let (_, held) = session.find_all_of(owner)?;
        session.finish();
        Ok(held)
    }

    /// Returns the owner of an address, if there is one. The result is only for messages, because no lock is taken.
    #[must_use]
    pub fn owner_of(&self, address: IpAddr) -> Option<LeaseOwner> {
        let Ok(Slot::Held(text, _)) = self.directory.read(address) else { return None };
        Some(LeaseOwner::of(&text))
    }

    /// Returns the leased addresses of one set of ranges. The result is only for messages, because no lock is taken.
    pub fn taken_of(&self, set: &RangeSet) -> Result<Vec<IpAddr>> {
        let mut taken = self.directory.addresses()?;
        taken.retain(|address| set.ranges.iter().any(|range| range.contains(*address)));
        taken.sort_unstable();
        Ok(taken)
    }

    /// Removes every lease of this network whose owner isn't in `valid`, whichever program wrote the lease. Returns the
    /// removed leases. An old lease that names only a container stays if the container has a valid attachment. Before
    /// each removal `spared` is called with the address, under the lock, because a current run may have taken an
    /// address that the runtime doesn't know yet. If the index is valid, no file of a valid owner is opened.
    pub fn retain(
        &self,
        valid: &[(&str, &str)],
        spared: impl Fn(&LeaseOwner, IpAddr) -> bool,
        deadline: Instant,
    ) -> Result<Vec<(IpAddr, LeaseOwner)>> {
        let mut session = self.lock(deadline)?;
        let mut removed = Vec::new();
        if !session.remove_others(valid, &spared, &mut removed)? {
            session.read_files()?;
            session.intact &= session.remove_others(valid, &spared, &mut removed)?;
        }
        session.finish();
        removed.sort();
        Ok(removed)
    }

    /// Returns the first set without a free address, if any. Files are counted without the lock. Only if the number of
    /// files could fill a set, the files are read under the lock.
    pub fn exhausted(&self, sets: &[RangeSet], deadline: Instant) -> Result<Option<usize>> {
        if full_set(sets, &self.directory.addresses()?).is_none() {
            return Ok(None);
        }
        let _lock = self.directory.lock(deadline)?;
        let mut taken = self.directory.addresses()?;
        let free: HashSet<IpAddr> = self.read_all(taken.clone(), false)?.free.into_iter().collect();
        taken.retain(|ip| !free.contains(ip));
        Ok(full_set(sets, &taken))
    }

    /// Takes the lock and gets a valid index.
    fn lock(&self, deadline: Instant) -> Result<Session<'_>> {
        let lock = self.directory.lock(deadline)?;
        let now = self.directory.times().map(|(mtime, ctime)| DirectoryTimes { mtime, ctime, boot: self.boot });
        let (index, changed) = match now.ok().and_then(|now| LeaseIndex::load(&self.index, &now)) {
            Some(index) => (index, false),
            None => (self.scan(true)?, true),
        };
        Ok(Session { leases: self, _lock: lock, index, intact: true, changed })
    }

    /// Makes a new index of every lease. Removes torn files, because the native plugin would take them for leases. The
    /// caller must hold the lock. If `notes_count` is true, files with the same identity as in the last index's notes
    /// aren't opened.
    fn scan(&self, notes_count: bool) -> Result<LeaseIndex> {
        let Reading { leases, free } = self.read_all(self.directory.clean_addresses()?, notes_count)?;
        for ip in free {
            self.directory.remove(ip)?;
        }
        Ok(LeaseIndex::Fresh(leases.into_iter().map(|(entry, _)| entry).collect()))
    }

    fn read_all(&self, addresses: Vec<IpAddr>, notes_count: bool) -> Result<Reading> {
        let notes: HashMap<IpAddr, IndexEntry> =
            LeaseIndex::notes(&self.index)?.into_iter().map(|entry| (entry.address, entry)).collect();
        let mut reading = Reading { leases: Vec::new(), free: Vec::new() };
        for address in addresses {
            let note = notes.get(&address);
            // A note is valid for one file. A later file of the same name has another identity.
            let unopened = match note {
                Some(note) if notes_count && self.directory.identify(address)? == Some(note.file) => Some(*note),
                _ => None,
            };
            let (entry, text) = match unopened {
                Some(note) => (note, String::new()),
                None => match self.directory.read(address)? {
                    Slot::Held(text, file) => {
                        let unknown = IndexEntry { key: key_of(&text), address, file, boot: 0 };
                        let known = note.filter(|note| IndexEntry { boot: 0, ..**note } == unknown);
                        (known.copied().unwrap_or(unknown), text)
                    }
                    Slot::Torn => {
                        reading.free.push(address);
                        continue;
                    }
                    Slot::Absent | Slot::Foreign => continue,
                },
            };
            if entry.boot != 0 && entry.boot != self.boot {
                reading.free.push(address);
            } else {
                reading.leases.push((entry, text));
            }
        }
        Ok(reading)
    }
}

/// Returns the leases that have no valid owner according to the index.
fn entries_to_collect(index: &LeaseIndex, valid: &[(&str, &str)]) -> std::io::Result<Vec<IndexEntry>> {
    let mut entries = index.entries()?;
    let retain = |entries: &mut Vec<IndexEntry>, key: &dyn Fn(&(&str, &str)) -> OwnerHash| {
        let known: HashSet<OwnerHash> = valid.iter().map(key).collect();
        entries.retain(|entry| !known.contains(&entry.key));
    };
    retain(&mut entries, &|(container_id, ifname)| key_of(&text_of(container_id, ifname)));
    if !entries.is_empty() {
        retain(&mut entries, &|(container_id, _)| key_of(container_id.trim()));
    }
    Ok(entries)
}

/// The content of the directory.
struct Reading {
    leases: Vec<(IndexEntry, String)>,
    /// Addresses with a torn file, or with a lease of an earlier boot.
    free: Vec<IpAddr>,
}

/// Returns the first set in which `taken` leaves no address.
#[must_use]
pub fn full_set(sets: &[RangeSet], taken: &[IpAddr]) -> Option<usize> {
    let usable = |range: &Range, ip: IpAddr| range.contains(ip) && Some(ip) != range.gateway;
    sets.iter().position(|set| {
        let count = taken.iter().filter(|ip| set.ranges.iter().any(|range| usable(range, **ip))).count();
        count as u128 >= set.capacity()
    })
}

/// One call under the lock.
struct Session<'a> {
    leases: &'a Leases,
    _lock: File,
    index: LeaseIndex,
    /// True if the index has followed all changes.
    intact: bool,
    /// True if directory or index changed since the last mark (see [`Session::finish`]).
    changed: bool,
}

impl Session<'_> {
    fn reserve_all(
        &mut self,
        owner: &LeaseOwner,
        sets: &[RangeSet],
        (requested, avoided): (&[IpAddr], &[IpAddr]),
        deadline: Instant,
        taken: &mut Vec<(IpAddr, FileId)>,
    ) -> Result<Vec<TakenAddress>> {
        let mut wanted: Vec<IpAddr> = Vec::new();
        for ip in requested.iter().map(IpAddr::to_canonical) {
            if !wanted.contains(&ip) {
                wanted.push(ip);
            }
        }
        let mut leases = Vec::new();
        for (number, set) in sets.iter().enumerate() {
            let request = wanted.iter().position(|ip| set.range_of(*ip).is_some()).map(|place| wanted.remove(place));
            let (ip, range, file) = match request {
                Some(ip) => self.take_requested(owner, set, ip, deadline),
                None => self.take_next(owner, set, (number, avoided), deadline),
            }
            .map_err(|error| error.in_set(number))?;
            taken.push((ip, file));
            leases.push(TakenAddress { address: range.with_prefix(ip), gateway: range.gateway, set: number });
        }
        if !wanted.is_empty() {
            let rest: Vec<String> = wanted.iter().map(IpAddr::to_string).collect();
            return Err(StateError::Refused(format!("failed to allocate all requested IPs: {}", rest.join(" "))));
        }
        for lease in &leases {
            self.leases.directory.set_last_reserved(lease.set, lease.address.addr())?;
        }
        Ok(leases)
    }

    fn take_requested<'r>(
        &mut self,
        owner: &LeaseOwner,
        set: &'r RangeSet,
        ip: IpAddr,
        deadline: Instant,
    ) -> Result<(IpAddr, &'r Range, FileId)> {
        let unavailable =
            || StateError::Refused(format!("requested IP address {ip} is not available in range set {set}"));
        let range = set.range_of(ip).ok_or_else(unavailable)?;
        if range.gateway == Some(ip) {
            return Err(StateError::Refused(format!("requested ip {ip} is subnet's gateway")));
        }
        self.place(owner, || [(ip, range)].into_iter(), deadline)?.ok_or_else(unavailable)
    }

    fn take_next<'r>(
        &mut self,
        owner: &LeaseOwner,
        set: &'r RangeSet,
        (number, avoided): (usize, &[IpAddr]),
        deadline: Instant,
    ) -> Result<(IpAddr, &'r Range, FileId)> {
        let mut held = self.find(&owner.text())?;
        held.extend(self.find(owner.old_text())?);
        if let Some(ip) = held.into_iter().find(|ip| set.range_of(*ip).is_some()) {
            return Err(StateError::Refused(format!(
                "{ip} has been allocated to {}, duplicate allocation is not allowed",
                owner.container_id
            )));
        }
        let last = self.leases.directory.last_reserved(number);
        self.place(owner, || set.walk(last).filter(|(ip, _)| !avoided.contains(ip)), deadline)?
            .ok_or_else(|| StateError::Exhausted(format!("no IP addresses available in range set: {set}")))
    }

    /// Takes the first candidate without a file. If every candidate has a file, takes the first candidate with a torn
    /// file.
    fn place<'r, I: Iterator<Item = (IpAddr, &'r Range)>>(
        &mut self,
        owner: &LeaseOwner,
        candidates: impl Fn() -> I,
        deadline: Instant,
    ) -> Result<Option<(IpAddr, &'r Range, FileId)>> {
        self.changed = true;
        let directory = &self.leases.directory;
        let text = owner.text();
        if let Some(placed) = directory.place(&text, candidates(), deadline)? {
            return Ok(Some(placed));
        }
        for (ip, range) in candidates() {
            if matches!(directory.read(ip)?, Slot::Torn) {
                directory.remove(ip)?;
                return directory.place(&text, [(ip, range)].into_iter(), deadline);
            }
        }
        Ok(None)
    }

    /// Returns the addresses of `owner`, with the text in their files. If the owner has no address, returns the
    /// addresses of old lease files that name only its container.
    fn find_all_of(&mut self, owner: &LeaseOwner) -> Result<(String, Vec<IpAddr>)> {
        let text = owner.text();
        let held = self.find(&text)?;
        if !held.is_empty() {
            return Ok((text, held));
        }
        Ok((owner.old_text().to_owned(), self.find(owner.old_text())?))
    }

    /// Returns the addresses of the files that hold `text`.
    fn find(&mut self, text: &str) -> Result<Vec<IpAddr>> {
        if let Some(found) = self.verified(text)? {
            return Ok(found);
        }
        self.read_files()?;
        Ok(self.verified(text)?.unwrap_or_default())
    }

    /// Makes the index anew from the files, after a program has rewritten a file, or if the index is damaged.
    fn read_files(&mut self) -> Result<()> {
        self.index = self.leases.scan(false)?;
        (self.intact, self.changed) = (true, true);
        Ok(())
    }

    /// Returns the addresses of `text` in the index; `None` if the files contradict the index.
    fn verified(&self, text: &str) -> Result<Option<Vec<IpAddr>>> {
        let Ok(entries) = self.index.find(&key_of(text)) else { return Ok(None) };
        let mut found = Vec::new();
        for entry in entries {
            match self.leases.directory.read(entry.address)? {
                Slot::Held(content, _) if content == text => found.push(entry.address),
                // A script without the lock removed the file just now: "absent" is the right answer.
                Slot::Absent => {}
                _ => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    /// Removes the leases without a `valid` owner, except the leases that `spared` keeps. Returns `false` if a file
    /// contradicts the index. Then the index must be made anew.
    fn remove_others(
        &mut self,
        valid: &[(&str, &str)],
        spared: impl Fn(&LeaseOwner, IpAddr) -> bool,
        removed: &mut Vec<(IpAddr, LeaseOwner)>,
    ) -> Result<bool> {
        let Ok(entries) = entries_to_collect(&self.index, valid) else { return Ok(false) };
        for entry in &entries {
            let text = match self.leases.directory.read(entry.address)? {
                Slot::Held(text, _) if key_of(&text) == entry.key => text,
                // A script without the lock removed the file just now.
                Slot::Absent => continue,
                _ => return Ok(false),
            };
            let owner = LeaseOwner::of(&text);
            if !spared(&owner, entry.address) {
                self.leases.directory.remove(entry.address)?;
                self.forget(&text, entry.address);
                removed.push((entry.address, owner));
            }
        }
        Ok(true)
    }

    fn forget(&mut self, text: &str, ip: IpAddr) {
        self.changed = true;
        self.intact &= self.index.remove(&key_of(text), ip).is_ok();
    }

    /// Marks the directory and writes the mark into the index. A failure (a full disk) is no error, because the work of
    /// this call is done. After a failure the next call reads the directory.
    fn finish(self) {
        if !self.changed || !self.intact {
            return;
        }
        let directory = &self.leases.directory;
        let marked = directory.set_back_mtime().and_then(|mark| Ok((mark, directory.times()?)));
        if let Ok((mark, (mtime, ctime))) = marked
            && mtime == mark
            && mtime != ctime
        {
            let mark = DirectoryTimes { mtime, ctime, boot: self.leases.boot };
            let place = &self.leases.index;
            if self.index.commit(place, &mark).is_err() && Dir::make(&place.root, 0o700).is_ok() {
                // Correctness doesn't depend on this write.
                let _ = self.index.commit(place, &mark);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
