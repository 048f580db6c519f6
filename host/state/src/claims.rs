//! An index of attachments' claims on addresses, on links of the host, and on settings that several attachments share.
//! The index tells which records may have a claim.
//!
//! The index is a file. The first run that looks for a claim makes the file, and then reads all records. So a record
//! that was written before the file existed is found too. The first page says whether all records are in the index.
//! After this page, the file has a bucket of four entries for each value of 16 bits. An entry is used again when its
//! record is gone. Neighbouring addresses have neighbouring buckets, so a network takes few pages of the sparse file.

use crate::error::Result;
use crate::files::digest;
use crate::record::{self, RecordKey};
use crate::slots::{Index, IndexSubject, SLOT, SlotHolder};
use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

/// The entries of a bucket.
const ENTRIES: usize = 4;
const BUCKET: usize = ENTRIES * SLOT;
/// The room of the first page.
const HEAD: u64 = 4096;
/// The first byte of an index that has all claims of all records. Earlier versions put only addresses into the index,
/// and write 1.
const COMPLETE: u8 = 2;

/// A thing that an attachment claims, as the number of its bucket. Two claims can have the same bucket: only the
/// records distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim(u16);

impl Claim {
    /// The claim on a link of the host with this interface index.
    #[must_use]
    pub fn link(index: u32) -> Self {
        Self::of(&[b"link", &index.to_le_bytes()])
    }

    /// The claim on a driver's device, by its bus and name.
    #[must_use]
    pub fn device(bus: &str, name: &str) -> Self {
        Self::of(&[b"device", bus.as_bytes(), name.as_bytes()])
    }

    /// The claim on a pair, by the name of its host end.
    #[must_use]
    pub fn pair(host_end: &str) -> Self {
        Self::of(&[b"pair", host_end.as_bytes()])
    }

    /// The claim on a parent's mode, by the parent's interface index.
    #[must_use]
    pub fn mode(parent: u32, mode: &str) -> Self {
        Self::of(&[b"mode", &parent.to_le_bytes(), mode.as_bytes()])
    }

    /// The claim on a setting of a link in the container's namespace.
    #[must_use]
    pub fn setting(netns_cookie: u64, index: u32, key: &str) -> Self {
        Self::of(&[b"setting", &netns_cookie.to_le_bytes(), &index.to_le_bytes(), key.as_bytes()])
    }

    /// The claim on `lo` in the container's namespace.
    #[must_use]
    pub fn loopback(netns_cookie: u64) -> Self {
        Self::of(&[b"lo", &netns_cookie.to_le_bytes()])
    }

    fn of(parts: &[&[u8]]) -> Self {
        Self(u16::from_be_bytes(digest(parts)))
    }

    fn place(self) -> u64 {
        HEAD + u64::from(self.0) * BUCKET as u64
    }
}

impl From<IpAddr> for Claim {
    /// The claim on an address. The number of the bucket is a hash of the address without its last 16 bits, plus these
    /// 16 bits.
    fn from(address: IpAddr) -> Self {
        let bytes = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let (network, [high, low]) = bytes.split_last_chunk().unwrap_or((&[], &[0, 0]));
        Self(u16::from_be_bytes(digest(&[network])).wrapping_add(u16::from_be_bytes([*high, *low])))
    }
}

/// Makes the next look-up of a claim read all records again, in each network namespace. An earlier version may have
/// written records without claims that this version looks for.
pub fn forget_complete(root: &Path) -> Result<()> {
    ClaimIndex::all(root)?.iter().try_for_each(|index| index.write(&[0], 0))
}

/// The claims of attachments.
#[derive(Debug)]
pub struct Claims;

impl IndexSubject for Claims {
    const SUBDIRECTORY: &'static str = "addresses";
    const IS_RARE: bool = true;
}

/// The index of claims. The run that makes the index has to read all records afterwards.
pub type ClaimIndex = Index<Claims>;

impl ClaimIndex {
    /// Opens the index and waits for its lock; `None` if no run has made it yet.
    pub fn find(root: &Path, host_netns_cookie: u64, deadline: Instant) -> Result<Option<Self>> {
        let opened = Self::unlocked(root, host_netns_cookie)?;
        opened.map(|opened| opened.lock(deadline)).transpose()
    }

    /// True if the claims of all records are in the index.
    pub fn is_complete(&self) -> Result<bool> {
        let mut head = [0];
        self.read(&mut head, 0)?;
        Ok(head == [COMPLETE])
    }

    /// Notes that the claims of all records are in the index.
    pub fn set_complete(&self) -> Result<()> {
        self.write(&[COMPLETE], 0)
    }

    /// Returns the records that may have a claim; `None` if all records have to be read.
    pub fn candidates(&self, claim: Claim) -> Result<Option<Vec<RecordKey>>> {
        let mut keys = Vec::new();
        for entry in self.bucket(claim)? {
            match entry {
                SlotHolder::Nobody => {}
                SlotHolder::One(key) => keys.push(key),
                SlotHolder::Several => return Ok(None),
            }
        }
        Ok(Some(keys))
    }

    /// Notes that a record may have a claim. After an error the record must not get the claim.
    pub fn note(&self, claim: Claim, key: &RecordKey) -> Result<()> {
        let bucket = self.bucket(claim)?;
        if bucket.iter().any(|entry| *entry == SlotHolder::Several || *entry == SlotHolder::One(*key)) {
            return Ok(());
        }
        let mut free = bucket.iter().position(|entry| *entry == SlotHolder::Nobody);
        for (index, entry) in bucket.iter().enumerate().filter(|_| free.is_none()) {
            if let SlotHolder::One(other) = entry
                && !record::exists(&self.root, other)?
            {
                free = Some(index);
                break;
            }
        }
        let (index, entry) = free.map_or((0, SlotHolder::Several), |index| (index, SlotHolder::One(*key)));
        self.set_slots(claim.place() + (index * SLOT) as u64, &[entry])
    }

    fn bucket(&self, claim: Claim) -> Result<Vec<SlotHolder>> {
        self.slots(claim.place(), ENTRIES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::tests::Scratch;
    use crate::{Header, Record, StateError};
    use serde_json::Value;
    use std::collections::HashSet;
    use std::time::Duration;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(200)
    }

    fn claim(address: &str) -> Claim {
        address.parse::<IpAddr>().unwrap().into()
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
        let address = claim("10.9.0.2");
        assert!(ClaimIndex::find(&root, 7, soon()).unwrap().is_none());
        let index = ClaimIndex::open(&root, 7, soon()).unwrap();
        assert!(!index.is_complete().unwrap());
        index.set_complete().unwrap();
        assert_eq!(index.candidates(address).unwrap(), Some(Vec::new()));
        for number in [1, 2, 1] {
            index.note(address, &key(number)).unwrap();
        }
        index.note(claim("fd00::9"), &key(3)).unwrap();
        assert_eq!(index.candidates(address).unwrap(), Some(vec![key(1), key(2)]));
        assert_eq!(index.candidates(claim("10.9.0.3")).unwrap(), Some(Vec::new()));
        assert!(matches!(ClaimIndex::find(&root, 7, soon()), Err(StateError::Locked { .. })));
        drop(index);
        let again = ClaimIndex::find(&root, 7, soon()).unwrap().unwrap();
        assert!(again.is_complete().unwrap());
        assert_eq!(again.candidates(claim("fd00::9")).unwrap(), Some(vec![key(3)]));
        assert!(ClaimIndex::find(&root, 8, soon()).unwrap().is_none(), "another namespace");
    }

    /// An index that an earlier version filled has only addresses.
    #[test]
    fn an_index_of_an_earlier_version_is_not_complete() {
        let scratch = Scratch::new();
        let root = scratch.path("state");
        let index = ClaimIndex::open(&root, 7, soon()).unwrap();
        index.write(&[1], 0).unwrap();
        assert!(!index.is_complete().unwrap());
    }

    #[test]
    fn after_an_upgrade_all_records_are_read_again() {
        let scratch = Scratch::new();
        let root = scratch.path("state");
        forget_complete(&root).unwrap();
        for cookie in [7, 8] {
            ClaimIndex::open(&root, cookie, soon()).unwrap().set_complete().unwrap();
        }
        forget_complete(&root).unwrap();
        for cookie in [7, 8] {
            assert!(!ClaimIndex::open(&root, cookie, soon()).unwrap().is_complete().unwrap());
        }
    }

    #[test]
    fn claims_of_different_things_differ() {
        let claims = [
            Claim::link(3),
            Claim::link(4),
            Claim::device("pci", "3"),
            Claim::pair("3"),
            Claim::mode(3, "l2"),
            Claim::mode(3, "l3"),
            Claim::setting(3, 3, "ipv6/accept_dad"),
            Claim::loopback(3),
        ];
        assert_eq!(claims.iter().collect::<HashSet<_>>().len(), claims.len());
    }

    /// Entries of removed records make room. If a bucket has no room, all records have to be read.
    #[test]
    fn a_full_bucket_loses_nobody() {
        let scratch = Scratch::new();
        let root = scratch.path("state");
        let address = claim("10.9.0.2");
        let mut records: Vec<_> = (0..ENTRIES).map(|number| record(&root, number)).collect();
        let index = ClaimIndex::open(&root, 7, soon()).unwrap();
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
        assert_eq!(index.candidates(claim("10.9.0.3")).unwrap(), Some(Vec::new()));
    }

    #[test]
    fn neighbours_have_buckets_of_their_own() {
        let of = |text: String| claim(&text).place();
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
