//! The files of leases. Each lease has a file, so a damaged file harms no other lease. The files survive the service
//! and a reboot.

use crate::clock;
use crate::gone::REMEMBERED_MS;
use crate::lease::{KeptLease, Phase};
use nix::sys::stat::{SFlag, fstat};
use postern_dhcp::Family;
use postern_dhcp_channel::Attachment;
use postern_state::{Dir, OpenMode, StateError, boot_id, kind, trust_stat};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The directory's name, below the directory of data that survive a reboot.
pub const DIRECTORY: &str = "dhcp";

/// The version of the files' format.
const VERSION: u32 = 1;

/// The longest file, in bytes.
const LONGEST: u64 = 4 << 20;

/// A lease as it is on disk. `Entry` is a reference when the lease is written.
#[derive(Debug, Serialize, Deserialize)]
struct Kept<Entry> {
    version: u32,
    #[serde(flatten)]
    entry: Entry,
    /// The reason why the lease is lost, if it is lost.
    lost: Option<String>,
    /// The boot whose clock the lease's times use.
    boot: String,
    /// The clock since boot and the wall clock, at the time of writing.
    written: (u64, u64),
}

/// The directory of the leases.
#[derive(Debug)]
pub struct Store {
    dir: Dir,
    pub path: PathBuf,
    boot: String,
}

/// Returns the name of a lease's file.
pub fn name(attachment: &Attachment, family: Family) -> String {
    let mut hasher = Sha256::new();
    for part in [&attachment.container_id, &attachment.network, &attachment.ifname] {
        // The length of each part separates the parts.
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    if family == Family::Ipv6 {
        hasher.update("ipv6");
    }
    let mut name = base16ct::lower::encode_string(&hasher.finalize());
    name.truncate(32);
    name + ".json"
}

impl Store {
    /// Opens the directory below `library`, and makes it if it is missing. No other user may be able to write to the
    /// directory.
    pub fn open(library: &Path) -> Result<Self, String> {
        let path = library.join(DIRECTORY);
        Dir::make(&path, 0o700).map_err(|error| format!("{}: {error}", path.display()))?;
        postern_state::trust(&path).map_err(|error| error.to_string())?;
        let dir = Dir::open_itself(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { dir, path, boot: boot_id().map_err(|error: StateError| error.to_string())? })
    }

    /// Writes a lease that a server has given, in one step.
    pub fn write(&self, entry: &KeptLease) -> io::Result<()> {
        let lost = if let Phase::Lost(reason) = &entry.phase { Some(reason.clone()) } else { None };
        let (boot, written) = (self.boot.clone(), (clock::since_boot(), clock::wall()));
        let text = serde_json::to_vec(&Kept { version: VERSION, entry, lost, boot, written })?;
        let name = entry.key();
        self.dir.replace(&name, &format!("{name}.new"), &text)
    }

    /// Removes a lease. A missing lease is no error.
    pub fn remove(&self, entry: &KeptLease) -> io::Result<()> {
        self.dir.unlink(&entry.key()).map(drop)
    }

    /// Reads all leases, with their times by this boot's clock. Leases of an earlier boot are remembered. An unreadable
    /// file stays, and is reported. Incomplete files after a kill or a power cut are removed: files are not synced to
    /// disk (docs/decisions/0034-dhcp-files-unsynced.md).
    pub fn load(&self) -> io::Result<Vec<KeptLease>> {
        let mut leases = Vec::new();
        for unfinished in self.dir.names_that(|name| name.ends_with(".json.new"))? {
            let _ = self.dir.unlink(&unfinished);
        }
        for name in self.dir.names_that(|name| name.ends_with(".json"))? {
            let path = self.path.join(&name);
            match self.read(&name) {
                Ok(Some(entry)) => leases.push(entry),
                Ok(None) => {
                    let path = path.display();
                    postern_gate::say!("postern dhcp: {path}: it was never written to disk, and is removed");
                    let _ = self.dir.unlink(&name);
                }
                Err(words) => postern_gate::say!("postern dhcp: {}: {words}; it is left alone", path.display()),
            }
        }
        Ok(leases)
    }

    /// Reads a lease; `None` if its bytes never reached the disk.
    fn read(&self, name: &str) -> Result<Option<KeptLease>, String> {
        let words = |error: io::Error| error.to_string();
        let file = self.dir.file(name, OpenMode::Read).map_err(words)?;
        let stat = fstat(&file).map_err(|errno| errno.desc().to_owned())?;
        if kind(&stat) != SFlag::S_IFREG {
            return Err("it is no regular file".to_owned());
        }
        trust_stat(&self.path.join(name), &stat, false).map_err(|error| error.to_string())?;
        let mut text = Vec::new();
        file.take(LONGEST).read_to_end(&mut text).map_err(words)?;
        if text.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let mut kept: Kept<KeptLease> = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        let is_whole = kept.entry.state.is_some() && kept.entry.lease.is_some();
        if kept.version != VERSION || kept.entry.key() != name || !is_whole {
            return Err("it belongs to another version, or to another lease".to_owned());
        }
        let is_of_before = kept.boot != self.boot;
        let now = clock::since_boot();
        // In another time namespace, the clock of the same boot may be behind the written time.
        if is_of_before || now < kept.written.0 {
            kept.carry_over(now, clock::wall());
        }
        let phase = match kept.lost {
            _ if is_of_before => Phase::Remembered,
            Some(reason) => Phase::Lost(reason),
            None => Phase::Bound,
        };
        let mut entry = kept.entry.begun(phase);
        entry.wake_at = entry.wake_at.filter(|_| matches!(entry.phase, Phase::Bound));
        if is_of_before {
            entry.expires_at.get_or_insert(REMEMBERED_MS);
        }
        Ok(Some(entry))
    }
}

impl Kept<KeptLease> {
    /// Converts the times of an earlier boot to this boot's clock. The wall clock measures the time since the file was
    /// written. If this clock was set back, no time counts as passed. A lease never becomes longer.
    fn carry_over(&mut self, now: u64, wall: u64) {
        let (then, then_wall) = self.written;
        let at = then.saturating_add(wall.saturating_sub(then_wall));
        let convert = |time: u64| now.saturating_add(time.saturating_sub(at));
        let entry = &mut self.entry;
        entry.expires_at = entry.expires_at.map(convert);
        entry.wake_at = entry.wake_at.map(convert);
        // The client's time continues.
        entry.offset = entry.offset.saturating_add(at).saturating_sub(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Identity;
    use postern_dhcp::{Lease, State};
    use std::os::unix::fs::PermissionsExt;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("postern-dhcp-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    fn lease(container: &str) -> KeptLease {
        let attachment = Attachment { container_id: container.to_owned(), ..Attachment::default() };
        KeptLease {
            attachment,
            namespace: Identity { device: 4, inode: 5 },
            index: 2,
            mac: [2, 0, 0, 0, 0, 1],
            state: Some(State(serde_json::json!({"x": 1}))),
            lease: Some(Lease::default()),
            wake_at: Some(1000),
            expires_at: Some(2000),
            ..KeptLease::default()
        }
        .begun(Phase::Bound)
    }

    #[test]
    fn leases_are_read_as_they_were_written() {
        let library = scratch("store");
        let store = Store::open(&library).unwrap();
        for container in ["c1", "c2"] {
            store.write(&lease(container)).unwrap();
        }
        store.write(&lease("c1")).unwrap();
        // A damaged file, a file with a wrong name, and a file that another user could have written.
        std::fs::write(store.path.join("damaged.json"), "{").unwrap();
        let own = lease("c1").key();
        std::fs::copy(store.path.join(&own), store.path.join("other.json")).unwrap();
        let open = store.path.join(lease("c2").key());
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o666)).unwrap();
        let loaded = store.load().unwrap();
        let names: Vec<&str> = loaded.iter().map(|entry| entry.attachment.container_id.as_str()).collect();
        assert_eq!(names, ["c1"]);
        assert!(matches!(loaded[0].phase, Phase::Bound));
        assert_eq!((loaded[0].wake_at, loaded[0].expires_at), (Some(1000), Some(2000)));
        store.remove(&lease("c1")).unwrap();
        store.remove(&lease("c1")).unwrap();
        assert!(store.load().unwrap().is_empty());
        std::fs::remove_dir_all(library).unwrap();
    }

    /// Other builds read the files of this build, and this build reads their files.
    #[test]
    fn a_file_has_these_keys() {
        let library = scratch("keys");
        let store = Store::open(&library).unwrap();
        store.write(&lease("c1")).unwrap();
        let text = std::fs::read(store.path.join(lease("c1").key())).unwrap();
        let file: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let mut keys: Vec<&String> = file.as_object().unwrap().keys().collect();
        keys.sort_unstable();
        let (of_lease, of_file) = (
            ["attachment", "expires_at", "family", "hop", "index", "lease", "mac", "namespace", "offset", "state"],
            ["wake_at", "boot", "lost", "version", "written"],
        );
        let mut expected = [&of_lease[..], &of_file].concat();
        expected.sort_unstable();
        assert_eq!(keys, expected);
        std::fs::remove_dir_all(library).unwrap();
    }

    #[test]
    fn what_a_power_cut_leaves_is_removed() {
        let library = scratch("cut");
        let store = Store::open(&library).unwrap();
        store.write(&lease("c1")).unwrap();
        let own = store.path.join(lease("c1").key());
        let empty = [("0.json", &[][..]), ("1.json", &[0; 4096]), ("2.json.new", b"{")];
        for (name, text) in empty {
            std::fs::write(store.path.join(name), text).unwrap();
            std::fs::set_permissions(store.path.join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        assert_eq!(store.load().unwrap().len(), 1);
        for (name, _) in empty {
            assert!(!store.path.join(name).exists(), "{name}");
        }
        assert!(own.exists());
        std::fs::remove_dir_all(library).unwrap();
    }

    #[test]
    fn times_over_a_reboot_never_grow() {
        let library = scratch("reboot");
        let store = Store::open(&library).unwrap();
        let entry = KeptLease { expires_at: Some(clock::since_boot() + 100_000), ..lease("c1") };
        store.write(&entry).unwrap();
        let file = std::fs::read(store.path.join(entry.key())).unwrap();
        for (elapsed, left) in [(0, 100_000), (40_000, 60_000), (200_000, 0), (-500_000, 100_000)] {
            let mut kept: Kept<KeptLease> = serde_json::from_slice(&file).unwrap();
            let (then, wall) = kept.written;
            kept.carry_over(5000, wall.saturating_add_signed(elapsed));
            let until = kept.entry.expires_at.unwrap() - 5000;
            assert!(until.abs_diff(left) < 1000, "{elapsed}: {until}");
            // The client's clock has not gone back.
            assert!(kept.entry.offset + 5000 >= then, "{elapsed}");
        }
        std::fs::remove_dir_all(library).unwrap();
    }

    #[test]
    fn names_do_not_run_together() {
        let of = |container: &str, network: &str, family| {
            let (container_id, network) = (container.to_owned(), network.to_owned());
            name(&Attachment { container_id, network, ..Attachment::default() }, family)
        };
        assert_ne!(of("a", "bc", Family::Ipv4), of("ab", "c", Family::Ipv4));
        assert_ne!(of("a", "bc", Family::Ipv4), of("a", "bc", Family::Ipv6));
    }
}
