//! Files of native plugins about attachments. The file of tuning has the old attributes of a changed link. The file of
//! flannel has the configuration of its delegate. Postern writes these files so that a native plugin can undo Postern's
//! ADD. It reads them to undo a native plugin's ADD.
//!
//! The directory and all its parents must belong to root or to this user. Otherwise another user could choose the
//! changes that Postern makes.

use crate::dir::{OpenMode, if_present};
use crate::error::{Result, StateError};
use crate::files::{Directory, short_hash};
use crate::record::RecordKey;
use crate::trust::{TrustError, is_system, trust, trust_file, trust_way};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// An open directory of native plugins' files.
pub struct Backups(Directory);

impl Backups {
    /// Opens the directory; `None` if it is missing.
    ///
    /// # Errors
    /// [`StateError::Untrusted`], or the directory can't be opened.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let opened = Directory::open(path);
        if opened.is_err() {
            // A confined run may open only trusted paths. So the message tells why the path is not trusted, and not
            // that the path can't be opened.
            trust_way(path, false).map_err(|reason| refused(path, &reason))?;
        }
        let Some(directory) = opened? else { return Ok(None) };
        trust(path).map_err(|reason| refused(path, &reason))?;
        if is_system(&trust_way(path, false).map_err(|reason| refused(path, &reason))?) {
            return Err(StateError::untrusted(path, "it is a directory of the system; name a separate directory"));
        }
        Ok(Some(Self(directory)))
    }

    /// Returns the name of an attachment's file. The native tuning plugin uses the same name.
    #[must_use]
    pub fn name(container_id: &str, ifname: &str) -> String {
        format!("{container_id}_{ifname}.json")
    }

    /// Returns the content of a file of at most `limit` bytes; `None` if the file is missing.
    ///
    /// # Errors
    /// [`StateError::Untrusted`] if another user could have written the file. Also fails if the file is a link, not
    /// regular, or too long.
    pub fn read(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let path = self.0.path_of(name);
        let failed = |error| StateError::io("read", &path, error);
        let opened = if_present(self.0.dir.file(name, OpenMode::Read)).map_err(failed)?;
        let Some(file) = opened else { return Ok(None) };
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(std::io::Error::new(ErrorKind::InvalidInput, "not a regular file")));
        }
        trust_file(&path, &file).map_err(|reason| refused(&path, &reason))?;
        let mut content = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut content).map_err(failed)?;
        if content.len() as u64 > limit {
            return Err(failed(std::io::Error::new(ErrorKind::FileTooLarge, "longer than any file of this kind")));
        }
        Ok(Some(content))
    }

    /// Returns the names of all files, each with the time of its last change. Unfinished files are left out.
    pub fn list(&self) -> Result<Vec<(String, SystemTime)>> {
        let mut files = Vec::new();
        for name in self.0.names_that(|name| !name.starts_with('.'))? {
            let Some(stat) = self.0.stat(&name)? else { continue };
            let since = u64::try_from(stat.st_mtime).map(Duration::from_secs).unwrap_or_default();
            files.push((name, SystemTime::UNIX_EPOCH + since));
        }
        Ok(files)
    }

    /// Writes an attachment's file, in one step, with mode 0600.
    pub fn write(&self, name: &str, of: &RecordKey, content: &[u8]) -> Result<()> {
        self.0.replace(name, &unfinished(name, of), content)
    }

    /// Removes an attachment's file, and the unfinished file of a killed run. True if the attachment's file was there.
    pub fn remove(&self, name: &str, of: &RecordKey) -> Result<bool> {
        self.remove_unfinished(name, of)?;
        self.unlink(name)
    }

    /// Removes the unfinished file of a killed run.
    pub fn remove_unfinished(&self, name: &str, of: &RecordKey) -> Result<()> {
        self.unlink(&unfinished(name, of)).map(drop)
    }

    /// Removes a file of a native plugin; true if it was there.
    pub fn unlink(&self, name: &str) -> Result<bool> {
        self.0.dir.unlink(name).map_err(|error| StateError::io("remove", self.0.path_of(name), error))
    }
}

/// The name of a file that is being written. Runs for one attachment never overlap, so only one run uses this name.
fn unfinished(name: &str, of: &RecordKey) -> String {
    format!(".{}.tmp", short_hash(&format!("{name}/{}", of.file_name())))
}

/// The error for a path that is not trusted. A path that can't be judged may be trusted at the next attempt.
fn refused(path: &Path, reason: &TrustError) -> StateError {
    match reason {
        TrustError::Unknown { reason, .. } => StateError::io("judge", path, std::io::Error::other(reason.clone())),
        TrustError::Defect { .. } => StateError::untrusted(path, reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::tests::Scratch;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A killed write leaves its temporary file. The next removal for the same attachment removes this file, and no
    /// file of another attachment.
    #[test]
    fn a_write_that_was_killed_leaves_nothing() {
        let scratch = Scratch::new();
        let place = scratch.path("killed");
        std::fs::create_dir(&place).unwrap();
        let backups = Backups::open(&place).unwrap().unwrap();
        let [own, other] = ["net1", "net2"].map(|network| RecordKey::new(1, network, "c1", "eth0"));
        for key in [&own, &other] {
            std::fs::write(place.join(unfinished("c1", key)), "{").unwrap();
        }
        assert!(!backups.remove("c1", &own).unwrap());
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 1);
        backups.write("c1", &own, b"{}").unwrap();
        backups.remove_unfinished("c1", &other).unwrap();
        assert_eq!(backups.read("c1", 4096).unwrap().as_deref(), Some(&b"{}"[..]));
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 1);
    }

    #[test]
    fn files_are_whole_and_no_others_are_believed() {
        let scratch = Scratch::new();
        let place = scratch.path("tuning");
        assert!(Backups::open(&place).unwrap().is_none());
        std::fs::create_dir(&place).unwrap();
        let backups = Backups::open(&place).unwrap().unwrap();
        let name = Backups::name("c1", "eth0");
        assert_eq!(name, "c1_eth0.json");
        assert_eq!(backups.read(&name, 4096).unwrap(), None);
        let own = RecordKey::new(1, "net", "c1", "eth0");
        backups.write(&name, &own, b"{}").unwrap();
        backups.write(&name, &own, b"{ }").unwrap();
        assert_eq!(backups.read(&name, 4096).unwrap().as_deref(), Some(&b"{ }"[..]));
        assert_eq!(std::fs::metadata(place.join(&name)).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 1);
        assert!(matches!(backups.list().unwrap().as_slice(), [(file, at)] if *file == name && at.elapsed().is_ok()));
        assert!(backups.remove(&name, &own).unwrap() && !backups.remove(&name, &own).unwrap());
        // A link, a directory, a file that others can write, and a long file.
        std::fs::write(scratch.path("other"), "{}").unwrap();
        symlink(scratch.path("other"), place.join("link")).unwrap();
        std::fs::create_dir(place.join("dir")).unwrap();
        std::fs::write(place.join("open"), "{}").unwrap();
        std::fs::set_permissions(place.join("open"), std::fs::Permissions::from_mode(0o666)).unwrap();
        std::fs::write(place.join("long"), vec![b' '; 5000]).unwrap();
        for name in ["link", "dir", "open", "long", "../other", ""] {
            assert!(backups.read(name, 4096).is_err(), "{name}");
        }
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Backups::open(&place), Err(StateError::Untrusted { .. })));
    }
}
