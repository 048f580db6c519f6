//! The files of leases: one for each, so that a damaged one harms no other. They survive the service and a reboot.

use crate::clock;
use crate::frame::MacBytes;
use crate::namespace::Identity;
use nix::sys::stat::{SFlag, fstat};
use postern_dhcp::{Family, Lease, State};
use postern_dhcp_channel::Attachment;
use postern_state::{Dir, OpenMode, StateError, boot_id, kind, trust_stat};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The directory's name, in that of the data that survive a reboot.
pub const DIRECTORY: &str = "dhcp";

/// The form of the files.
const VERSION: u32 = 1;

/// The longest file, in bytes.
const LONGEST: u64 = 4 << 20;

/// A lease, as the service has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parts {
    /// The attachment, with all that the client needs.
    pub attachment: Attachment,
    /// The family of its address.
    #[serde(default)]
    pub family: Family,
    /// Its network namespace.
    pub namespace: Identity,
    /// The index of its link.
    pub index: u32,
    /// The link's hardware address.
    pub mac: MacBytes,
    /// The hardware address that the last answer came from: the server, or the router to it.
    pub hop: Option<MacBytes>,
    /// The client's state.
    pub state: State,
    /// The lease.
    pub lease: Lease,
    /// Why it is lost, if it is.
    pub lost: Option<String>,
    /// The time of the next step, by this boot's clock.
    pub wake_at: Option<u64>,
    /// The end of the lease, by this boot's clock; none: never.
    pub expires_at: Option<u64>,
    /// What goes on top of this boot's clock for the client's time.
    pub offset: u64,
}

/// A lease as it is on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    version: u32,
    #[serde(flatten)]
    parts: Parts,
    /// The boot that these times are of.
    boot: String,
    /// Both clocks, when the file was written.
    written: (u64, u64),
}

/// A lease that was read.
#[derive(Debug)]
pub struct Loaded {
    /// The lease, with its times by this boot's clock.
    pub parts: Parts,
    /// True if it is of a boot before this one.
    pub is_of_before: bool,
}

/// The directory of the leases.
#[derive(Debug)]
pub struct Store {
    dir: Dir,
    path: PathBuf,
    boot: String,
}

/// Returns the name of a lease's file.
pub fn name(attachment: &Attachment, family: Family) -> String {
    let mut hasher = Sha256::new();
    for part in [&attachment.container_id, &attachment.network, &attachment.ifname] {
        // The length keeps the parts apart.
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
    /// Opens the directory below `library`, and makes it where it is missing. Nobody else may be able to write there.
    ///
    /// # Errors
    /// It can't be opened, or is not to be trusted.
    pub fn open(library: &Path) -> Result<Self, String> {
        let path = library.join(DIRECTORY);
        Dir::make(&path, 0o700).map_err(|error| format!("{}: {error}", path.display()))?;
        postern_state::trust(&path).map_err(|error| error.to_string())?;
        let dir = Dir::open_itself(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { dir, path, boot: boot_id().map_err(|error: StateError| error.to_string())? })
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a lease, in one step.
    ///
    /// # Errors
    /// The disk is full, or can't be written.
    pub fn write(&self, parts: Parts) -> io::Result<()> {
        let name = name(&parts.attachment, parts.family);
        let kept =
            Kept { version: VERSION, parts, boot: self.boot.clone(), written: (clock::since_boot(), clock::wall()) };
        let text = serde_json::to_vec(&kept)?;
        self.dir.replace(&name, &format!("{name}.new"), &text)
    }

    /// Removes a lease. It need not be there.
    ///
    /// # Errors
    /// The disk can't be written.
    pub fn remove(&self, attachment: &Attachment, family: Family) -> io::Result<()> {
        self.dir.unlink(&name(attachment, family)).map(drop)
    }

    /// Reads all leases. One that can't be read is left where it is, and said. What a kill or a power cut has left of a
    /// file is removed: nothing is synced to disk (docs/decisions.md).
    ///
    /// # Errors
    /// The directory can't be listed.
    pub fn load(&self) -> io::Result<Vec<Loaded>> {
        let mut leases = Vec::new();
        for unfinished in self.dir.names_that(|name| name.ends_with(".json.new"))? {
            let _ = self.dir.unlink(&unfinished);
        }
        for name in self.dir.names_that(|name| name.ends_with(".json"))? {
            match self.read(&name) {
                Ok(Some(loaded)) => leases.push(loaded),
                Ok(None) => {
                    let path = self.path.join(&name);
                    postern_gate::say!(
                        "postern dhcp: {}: it was never written to disk, and is removed",
                        path.display()
                    );
                    let _ = self.dir.unlink(&name);
                }
                Err(words) => {
                    postern_gate::say!("postern dhcp: {}: {words}; it is left alone", self.path.join(&name).display());
                }
            }
        }
        Ok(leases)
    }

    /// Reads a lease; `None` if its bytes never reached the disk.
    fn read(&self, name: &str) -> Result<Option<Loaded>, String> {
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
        let mut kept: Kept = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        if kept.version != VERSION || self::name(&kept.parts.attachment, kept.parts.family) != name {
            return Err("it is not of this version, or of another lease".to_owned());
        }
        let is_of_before = kept.boot != self.boot;
        let now = clock::since_boot();
        // This boot's clock is behind as well if the service was moved to another time namespace.
        if is_of_before || now < kept.written.0 {
            kept.carry_over(now, clock::wall());
        }
        Ok(Some(Loaded { parts: kept.parts, is_of_before }))
    }
}

impl Kept {
    /// Converts the times of an earlier boot to this one's clock. Between them counts the wall clock. It may have been
    /// set back: then no time counts, and the lease is never longer than it was.
    fn carry_over(&mut self, now: u64, wall: u64) {
        let (then, then_wall) = self.written;
        let at = then.saturating_add(wall.saturating_sub(then_wall));
        let convert = |time: u64| now.saturating_add(time.saturating_sub(at));
        let parts = &mut self.parts;
        parts.expires_at = parts.expires_at.map(convert);
        parts.wake_at = parts.wake_at.map(convert);
        // The client's time goes on.
        parts.offset = parts.offset.saturating_add(at).saturating_sub(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("postern-dhcp-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    fn parts(container: &str) -> Parts {
        Parts {
            attachment: Attachment { container_id: container.to_owned(), ..Attachment::default() },
            family: Family::Ipv4,
            namespace: Identity { device: 4, inode: 5 },
            index: 2,
            mac: [2, 0, 0, 0, 0, 1],
            hop: None,
            state: State(serde_json::json!({"x": 1})),
            lease: Lease::default(),
            lost: None,
            wake_at: Some(1000),
            expires_at: Some(2000),
            offset: 0,
        }
    }

    #[test]
    fn leases_are_read_as_they_were_written() {
        let library = scratch("store");
        let store = Store::open(&library).unwrap();
        for container in ["c1", "c2"] {
            store.write(parts(container)).unwrap();
        }
        store.write(parts("c1")).unwrap();
        // One that is damaged, one of another name, and one that another user could have written.
        std::fs::write(store.path().join("damaged.json"), "{").unwrap();
        let own = name(&parts("c1").attachment, Family::Ipv4);
        std::fs::copy(store.path().join(&own), store.path().join("other.json")).unwrap();
        let open = store.path().join(name(&parts("c2").attachment, Family::Ipv4));
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o666)).unwrap();
        let loaded = store.load().unwrap();
        let names: Vec<&str> = loaded.iter().map(|loaded| loaded.parts.attachment.container_id.as_str()).collect();
        assert_eq!(names, ["c1"]);
        assert!(!loaded[0].is_of_before);
        assert_eq!((loaded[0].parts.wake_at, loaded[0].parts.expires_at), (Some(1000), Some(2000)));
        store.remove(&parts("c1").attachment, Family::Ipv4).unwrap();
        store.remove(&parts("c1").attachment, Family::Ipv4).unwrap();
        assert!(store.load().unwrap().is_empty());
        std::fs::remove_dir_all(library).unwrap();
    }

    #[test]
    fn what_a_power_cut_leaves_is_removed() {
        let library = scratch("cut");
        let store = Store::open(&library).unwrap();
        store.write(parts("c1")).unwrap();
        let own = store.path().join(name(&parts("c1").attachment, Family::Ipv4));
        let empty = [("0.json", &[][..]), ("1.json", &[0; 4096]), ("2.json.new", b"{")];
        for (name, text) in empty {
            std::fs::write(store.path().join(name), text).unwrap();
            std::fs::set_permissions(store.path().join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        assert_eq!(store.load().unwrap().len(), 1);
        for (name, _) in empty {
            assert!(!store.path().join(name).exists(), "{name}");
        }
        assert!(own.exists());
        std::fs::remove_dir_all(library).unwrap();
    }

    #[test]
    fn times_over_a_reboot_never_grow() {
        let library = scratch("reboot");
        let store = Store::open(&library).unwrap();
        let mut parts = parts("c1");
        let now = clock::since_boot();
        parts.expires_at = Some(now + 100_000);
        let file = store.path().join(name(&parts.attachment, Family::Ipv4));
        store.write(parts).unwrap();
        let kept: Kept = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let (then, wall) = kept.written;
        for (elapsed, left) in [(0, 100_000), (40_000, 60_000), (200_000, 0), (-500_000, 100_000)] {
            let mut kept = kept.clone();
            kept.carry_over(5000, wall.saturating_add_signed(elapsed));
            let until = kept.parts.expires_at.unwrap() - 5000;
            assert!(until.abs_diff(left) < 1000, "{elapsed}: {until}");
            // The client's clock has not gone back.
            assert!(kept.parts.offset + 5000 >= then, "{elapsed}");
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
