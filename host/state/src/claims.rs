//! An index of the links of the host that attachments have taken: which records may list a link.
//!
//! The truth is in the records. An entry is an empty file `<root>/links/<claim>.<record>`: the claim is a hash of what the link is
//! known by. So a run that looks for the owner of a link lists one directory, and opens the records of that link alone. An
//! entry may be out of date: its record is gone, or lists another link by now.
//!
//! Who asks first reads all records, those of earlier versions among them, and leaves a mark. A run makes its entry before its
//! record lists the link, with or without the mark.

use crate::dir::OpenMode;
use crate::error::{Result, StateError};
use crate::files::{Directory, digest, lock_before, short_hex};
use crate::record::{self, RecordKey};
use std::path::Path;
use std::time::Instant;

const SUBDIRECTORY: &str = "links";
/// It is locked while entries are made and removed.
const LOCK: &str = "lock";
/// The beginning of the mark's name. The namespace's number follows.
const COMPLETE: &str = "complete";
/// The most entries without a record that one question removes.
const MOST_SWEPT: usize = 64;

/// What a link of a namespace is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkClaim(String);

impl LinkClaim {
    /// The claim on the link with an interface index: the kernel seldom gives one twice. The records tell which link it is.
    #[must_use]
    pub fn of_index(host_netns_cookie: u64, index: u32) -> Self {
        Self(short_hex(&digest(&[b"index", &host_netns_cookie.to_le_bytes(), &index.to_le_bytes()])))
    }

    /// The claim on a driver's device, by its bus and name.
    #[must_use]
    pub fn of_device(host_netns_cookie: u64, bus: &str, name: &str) -> Self {
        Self(short_hex(&digest(&[b"device", &host_netns_cookie.to_le_bytes(), bus.as_bytes(), name.as_bytes()])))
    }
}

/// Notes that a record may list a link. The record's file is there already.
///
/// # Errors
/// [`StateError::Locked`] at the deadline, [`StateError::Untrusted`], [`StateError::Io`]: then the record must not list it.
pub fn note(root: &Path, claim: &LinkClaim, key: &RecordKey, deadline: Instant) -> Result<()> {
    let directory = made(root)?;
    let _lock = locked(&directory, deadline)?;
    put(&directory, &format!("{}.{}", claim.0, key.file_name()))
}

/// Notes the claims of all records, and that all records are in it.
///
/// # Errors
/// As [`note`]: then the next question reads all records too.
pub fn fill(root: &Path, host_netns_cookie: u64, all: &[(LinkClaim, RecordKey)], deadline: Instant) -> Result<()> {
    let directory = made(root)?;
    let _lock = locked(&directory, deadline)?;
    for (claim, key) in all {
        put(&directory, &format!("{}.{}", claim.0, key.file_name()))?;
    }
    put(&directory, &mark(host_netns_cookie))
}

/// Returns the records that may list a link with one of these claims; `None` if all records have to be asked: nobody has filled
/// the index, or it can't be read. Entries whose records are gone are removed, if that is possible.
#[must_use]
pub fn candidates(root: &Path, host_netns_cookie: u64, claims: &[LinkClaim]) -> Option<Vec<RecordKey>> {
    let directory = Directory::state(root, SUBDIRECTORY, false).ok()??;
    let names = directory.names().ok()?;
    let mark = mark(host_netns_cookie);
    if !names.contains(&mark) {
        return None;
    }
    let entries = names.iter().filter_map(|name| {
        let (claim, key) = name.split_once('.')?;
        Some((name, claim, RecordKey::parse(key)?))
    });
    let (mut keys, mut stale) = (Vec::new(), Vec::new());
    for (name, claim, key) in entries {
        let is_wanted = claims.iter().any(|wanted| wanted.0 == claim);
        if stale.len() < MOST_SWEPT && !record::is_there(root, &key) {
            stale.push((name, key));
        } else if is_wanted {
            keys.push(key);
        }
    }
    // A run that makes an entry has the lock, and its record is there before.
    if !stale.is_empty()
        && let Ok(_lock) = locked(&directory, Instant::now())
    {
        for (name, _) in stale.iter().filter(|(_, key)| !record::is_there(root, key)) {
            // Whoever asks next tries it again.
            let _ = directory.unlink(name);
        }
    }
    Some(keys)
}

fn mark(host_netns_cookie: u64) -> String {
    format!("{COMPLETE}-{host_netns_cookie:016x}")
}

fn made(root: &Path) -> Result<Directory> {
    let absent = || StateError::io("open", root.join(SUBDIRECTORY), nix::errno::Errno::ENOENT);
    Directory::state(root, SUBDIRECTORY, true)?.ok_or_else(absent)
}

fn locked(directory: &Directory, deadline: Instant) -> Result<std::fs::File> {
    let path = directory.path_of(LOCK);
    let opened = directory.dir.file(LOCK, OpenMode::ChangeOrCreate(0o600));
    let file = opened.map_err(|error| StateError::io("open", &path, error))?;
    lock_before(&file, &path, deadline)?;
    Ok(file)
}

fn put(directory: &Directory, name: &str) -> Result<()> {
    let made = directory.dir.file(name, OpenMode::ChangeOrCreate(0o600));
    made.map(drop).map_err(|error| StateError::io("write", directory.path_of(name), error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::tests::Scratch;
    use crate::{Header, Record};
    use serde_json::Value;
    use std::time::Duration;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(200)
    }

    fn record(root: &Path, container: &str) -> Record<Value> {
        let header = Header {
            network: "n".to_owned(),
            container_id: container.to_owned(),
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
    fn an_entry_is_there_as_long_as_its_record() {
        let scratch = Scratch::new();
        let root = scratch.path("state");
        let key = |container: &str| RecordKey::new(7, "n", container, "eth0");
        let (device, index) = (LinkClaim::of_device(7, "pci", "0000:00:03.0"), LinkClaim::of_index(7, 3));
        let asked = |claims: &[LinkClaim]| candidates(&root, 7, claims);
        let (first, second) = (record(&root, "a"), record(&root, "b"));
        assert_eq!(asked(std::slice::from_ref(&device)), None, "nobody has looked at all records");
        fill(&root, 7, &[(device.clone(), key("a"))], soon()).unwrap();
        note(&root, &index, &key("b"), soon()).unwrap();
        assert_eq!(asked(std::slice::from_ref(&device)), Some(vec![key("a")]));
        let both = asked(&[device.clone(), index.clone()]).unwrap();
        assert!(both.len() == 2 && both.contains(&key("a")) && both.contains(&key("b")), "{both:?}");
        assert_eq!(asked(&[LinkClaim::of_index(8, 3), LinkClaim::of_device(7, "pci", "x")]), Some(vec![]));
        assert_eq!(candidates(&root, 8, &[LinkClaim::of_index(8, 3)]), None, "another namespace");
        assert!(second.remove_file().unwrap());
        assert_eq!(asked(std::slice::from_ref(&index)), Some(vec![]));
        let entries = std::fs::read_dir(root.join(SUBDIRECTORY)).unwrap().count();
        assert_eq!(entries, 3, "the lock, the mark, and one entry");
        drop(first);
    }

    /// Whoever only asks needs no index: one that can't be read or written means that all records are read.
    #[test]
    fn an_index_that_is_no_directory_is_none() {
        let scratch = Scratch::new();
        let root = scratch.path("state");
        let _record = record(&root, "a");
        std::fs::write(root.join(SUBDIRECTORY), "").unwrap();
        let claim = LinkClaim::of_index(7, 3);
        assert_eq!(candidates(&root, 7, std::slice::from_ref(&claim)), None);
        fill(&root, 7, &[(claim, RecordKey::new(7, "n", "a", "eth0"))], soon()).unwrap_err();
    }
}
