//! The native host-local plugin's directory, `<dataDir>/<network>/`, as it is on disk:
//!
//! * `lock`: taken with `flock(LOCK_EX)` around every change;
//! * one file per address. Its name is the address's text, its content `<containerID>` CR LF `<ifname>`; a very old
//!   file has only the container ID;
//! * `last_reserved_ip.<N>`: the address last taken for range set N.
//!
//! Other programs read and write these files, so the layout is an interface. Postern improves on the native plugin in
//! two points. A file appears together with its content; the native plugin creates it empty and writes later. A file
//! without usable content, after a crash or on a full disk, doesn't count as a lease.

use crate::dir::{Dir, OpenMode};
use crate::error::{Result, StateError};
use crate::files::Directory;
use crate::trust::{TrustError, is_system, trust_stat, trust_way};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, futimens, lstat};
use nix::sys::time::TimeSpec;
use nix::unistd::linkat;
use rustix::fs::{RenameFlags, renameat_with};
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The prefix of Postern's temporary files. No address begins with it. After a crash the next scan removes them.
const TEMPORARY: &str = ".postern-";
const TEMPORARY_LEASE: &str = ".postern-lease";
const TEMPORARY_LAST: &str = ".postern-last";

/// The longest lease file, in bytes: a container ID and an interface name are far shorter.
const LONGEST: usize = 256 << 10;

/// Nearly every lease file is shorter than this, in bytes.
const USUAL: usize = 1 << 10;

/// A point in time as the file system stores it: seconds and nanoseconds.
pub(crate) type Time = (i64, u32);

/// The identity of a file. A changed, replaced or restored file of the same name has a different identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) inode: u64,
    pub(crate) written: Time,
}

impl FileId {
    fn of(meta: &Metadata) -> Self {
        Self { inode: meta.ino(), written: (meta.mtime(), nanoseconds(meta.mtime_nsec())) }
    }
}

/// The state of an address in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// No file.
    Absent,
    /// A file without usable content: the address is free.
    Torn,
    /// A lease, with the text of its owner.
    Held(String, FileId),
    /// An object that is not a lease file, such as a link: the address is taken, and its owner is unknown.
    Foreign,
}

pub(crate) struct LeaseDir {
    directory: Directory,
}

/// A lease that is not yet visible.
struct Draft<'a> {
    file: File,
    content: &'a str,
    id: FileId,
    /// True if the draft has the name [`TEMPORARY_LEASE`], false if it has no name.
    named: bool,
}

/// Refuses a directory of leases that another user could change or redirect, or that several networks would share. The
/// data directory itself may be sticky: other users can add files to it, but can't change a network's directory.
/// Missing parts of the path are allowed. Returns the real path.
///
/// # Errors
/// [`StateError::Relative`], [`StateError::Untrusted`], [`StateError::Io`].
pub fn place(data_dir: &Path, network: &str) -> Result<PathBuf> {
    examined(data_dir, network).map(|(place, _)| place)
}

/// Refuses a data directory that another user could replace or redirect. Returns its real path, and opens it if it
/// exists.
pub(crate) fn data_directory(data_dir: &Path) -> Result<(PathBuf, Option<Directory>)> {
    // The directory is opened after its path was verified, so that it is the verified directory.
    let known = known_path(data_dir);
    let looked = known.clone().map_or_else(|| trust_way(data_dir, true), Ok);
    let directory = match (Directory::open(data_dir).map_err(no_directory), &looked) {
        // The defect of the path is the error to report: the path's owner decides where the path leads.
        (Err(_), Err(TrustError::Defect { .. })) => None,
        (opened, _) => opened?.map(Directory::refuse_replaceable).transpose()?,
    };
    let real = match (known, &directory) {
        // The directory was removed since its path was verified.
        (Some(_), None) => trust_way(data_dir, true),
        _ => looked,
    };
    let real = real.map_err(|reason| match reason {
        // The directory may exist later: a link may lead to a file system that is not mounted yet.
        TrustError::Unknown { path, reason } => StateError::io("look at", path, io::Error::other(reason)),
        defect => StateError::untrusted(data_dir, defect),
    })?;
    if directory.is_some() {
        note_path(data_dir, &real);
    }
    Ok((real, directory))
}

/// Opens the directory at a `place` that [`place`] has returned for this `data_dir`. A link at the path's end is not
/// followed. `None` if the directory is missing, or if another user could have put it there.
#[must_use]
pub fn open_place(data_dir: &Path, place: &Path) -> Option<Dir> {
    // The data directory was missing before, and another user may have made it meanwhile.
    if known_path(data_dir).is_none() {
        let network = place.file_name()?.to_str()?;
        self::place(data_dir, network).ok().filter(|again| again == place)?;
    }
    Directory::open_itself(place).ok()??.trusted().ok().map(|directory| directory.dir)
}

/// Works as [`place`], and also returns the open data directory if it exists.
fn examined(data_dir: &Path, network: &str) -> Result<(PathBuf, Option<Directory>)> {
    if network.is_empty() || network.starts_with('.') || network.contains(['/', '\0']) {
        let reason = format!("network name {network:?} is no plain file name; choose another name");
        return Err(StateError::untrusted(data_dir, reason));
    }
    if !data_dir.is_absolute() {
        return Err(StateError::Relative { path: data_dir.to_owned() });
    }
    let (real, directory) = data_directory(data_dir)?;
    let place = real.join(network);
    // With `/var` and a network `lib`, all files below would belong to the network.
    if is_system(&place) {
        let reason = "it is a directory of the system, not of a network; name another ipam.dataDir";
        return Err(StateError::untrusted(&place, reason));
    }
    Ok((place, directory))
}

/// Converts the error of a name that leads to no directory, such as a file, or a link to itself. The object can never
/// hold leases.
fn no_directory(error: StateError) -> StateError {
    match &error {
        StateError::Io { path, .. } if matches!(error.errno(), Some(Errno::ENOTDIR | Errno::ELOOP)) => {
            StateError::untrusted(path, "it is no directory, so it can hold no leases; look at it and remove it")
        }
        _ => error,
    }
}

/// Converts the error of a directory that was not opened because of a defect. A confined gate gets no right to such a
/// directory.
fn defect_of(path: &Path, error: StateError) -> StateError {
    let is_refused = error.errno() == Some(Errno::EACCES);
    match lstat(path).ok().filter(|_| is_refused).map(|stat| trust_stat(path, &stat, false)) {
        Some(Err(reason)) => StateError::untrusted(path, reason),
        _ => error,
    }
}

/// Verified paths to existing directories, with their real paths. A run opens its leases several times. Only root and
/// this user can change an accepted path.
static GOOD: Mutex<Vec<(PathBuf, PathBuf)>> = Mutex::new(Vec::new());

fn known_path(data_dir: &Path) -> Option<PathBuf> {
    let good = GOOD.lock().unwrap_or_else(PoisonError::into_inner);
    good.iter().find(|(known, _)| known == data_dir).map(|(_, real)| real.clone())
}

fn note_path(data_dir: &Path, real: &Path) {
    let mut good = GOOD.lock().unwrap_or_else(PoisonError::into_inner);
    if !good.iter().any(|(known, _)| known == data_dir) {
        good.push((data_dir.to_owned(), real.to_owned()));
    }
}

impl LeaseDir {
    /// Opens the directory of `network`. A missing directory is made with `create`; without `create` the result is
    /// `None`.
    pub(crate) fn open(data_dir: &Path, network: &str, create: bool) -> Result<Option<Self>> {
        let (_, mut parent) = examined(data_dir, network)?;
        if parent.is_none() && create {
            Directory::create(data_dir, 0o755)?;
            // In a directory that all users can write, another user may have made the network's directory first.
            (_, parent) = examined(data_dir, network)?;
        }
        let Some(parent) = parent else { return Ok(None) };
        let opened = parent.subdirectory(network, create.then_some(0o755)).map_err(no_directory);
        let directory = opened.map_err(|error| defect_of(&parent.path_of(network), error))?;
        Ok(directory.map(Directory::trusted).transpose()?.map(|directory| Self { directory }))
    }

    /// Takes the lock that the native plugin takes. Closing the file frees the lock.
    pub(crate) fn lock(&self, deadline: Instant) -> Result<File> {
        self.directory.locked("lock", OpenMode::ReadOrCreate(0o750), deadline)
    }

    /// Returns all addresses that have a file. A name that is no address's canonical text is left out.
    pub(crate) fn addresses(&self) -> Result<Vec<IpAddr>> {
        Ok(self.directory.names()?.iter().filter_map(|name| address_of(name)).collect())
    }

    /// Works as [`Self::addresses`], and removes the temporary files of a crashed Postern process. The caller must hold
    /// the lock.
    pub(crate) fn clean_addresses(&self) -> Result<Vec<IpAddr>> {
        let names = self.directory.names()?;
        for name in names.iter().filter(|name| name.starts_with(TEMPORARY)) {
            self.directory.unlink(name)?;
        }
        Ok(names.iter().filter_map(|name| address_of(name)).collect())
    }

    /// Returns the identity of the file at `ip`, without opening it.
    pub(crate) fn identify(&self, ip: IpAddr) -> Result<Option<FileId>> {
        let stat = self.directory.stat(&ip.to_string())?;
        Ok(stat.map(|stat| FileId { inode: stat.st_ino, written: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)) }))
    }

    /// Returns the path of the file of `ip`, for messages.
    pub(crate) fn path_of(&self, ip: IpAddr) -> PathBuf {
        self.directory.path_of(&ip.to_string())
    }

    /// Reads the file of `ip`.
    pub(crate) fn read(&self, ip: IpAddr) -> Result<Slot> {
        let name = ip.to_string();
        let failed = |error: io::Error| StateError::io("read", self.directory.path_of(&name), error);
        let file = match self.directory.dir.file(&name, OpenMode::Read) {
            Ok(file) => file,
            Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::ENOENT) => return Ok(Slot::Absent),
                Some(Errno::ELOOP | Errno::ENXIO) => return Ok(Slot::Foreign),
                _ => return Err(failed(error)),
            },
        };
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() || meta.len() > LONGEST as u64 {
            return Ok(Slot::Foreign);
        }
        let id = FileId::of(&meta);
        // One read is enough for nearly every file. With thousands of files each further call costs time.
        let (mut small, mut large) = ([0; USUAL], Vec::new());
        let buffer = if meta.len() < USUAL as u64 {
            small.as_mut_slice()
        } else {
            // The buffer is on the heap, because a runtime may have made the stack small.
            large.resize(LONGEST, 0);
            large.as_mut_slice()
        };
        let length = file.read_at(buffer, 0).map_err(failed)?;
        let content = buffer.get(..length).unwrap_or_default();
        Ok(match std::str::from_utf8(content) {
            // A crash of the node can leave a file with its length but without its data: blocks of zeros.
            Ok(text) if text.contains('\0') || text.trim().is_empty() => Slot::Torn,
            Ok(text) => Slot::Held(text.trim().to_owned(), id),
            Err(_) => Slot::Foreign,
        })
    }

    /// Writes `content` to the file of the first candidate that has no file yet.
    ///
    /// linkat(2) fails if the file exists. So nothing is listed or read, and no file is replaced. The deadline limits
    /// long searches.
    pub(crate) fn place<T>(
        &self,
        content: &str,
        candidates: impl Iterator<Item = (IpAddr, T)>,
        deadline: Instant,
    ) -> Result<Option<(IpAddr, T, FileId)>> {
        let mut draft: Option<Draft<'_>> = None;
        for (tried, (ip, with)) in candidates.enumerate() {
            if tried % 1024 == 1023 && Instant::now() >= deadline {
                return Err(StateError::LongSearch { path: self.directory.path_of("lock") });
            }
            let ready = match draft.take() {
                Some(draft) => draft,
                None => self.draft(content)?,
            };
            let (ready, placed) = self.publish(ready, &ip.to_string())?;
            if placed {
                return Ok(Some((ip, with, ready.id)));
            }
            draft = Some(ready);
        }
        Ok(None)
    }

    /// Removes the file of `ip`.
    pub(crate) fn remove(&self, ip: IpAddr) -> Result<bool> {
        self.directory.unlink(&ip.to_string())
    }

    /// Returns the address last taken for range set `set`; `None` if the file's content is no address.
    pub(crate) fn last_reserved(&self, set: usize) -> Option<IpAddr> {
        let content = self.directory.read(&last_name(set)).ok()??;
        std::str::from_utf8(&content).ok()?.parse().ok()
    }

    /// Notes the address last taken for range set `set`. The text has no newline, because the native plugin can't parse
    /// a text with a newline.
    pub(crate) fn set_last_reserved(&self, set: usize, ip: IpAddr) -> Result<()> {
        self.directory.replace(&last_name(set), TEMPORARY_LAST, ip.to_string().as_bytes())
    }

    /// Returns the times of the last content change (mtime) and of the last change of any kind (ctime).
    pub(crate) fn times(&self) -> io::Result<(Time, Time)> {
        let stat = self.directory.dir.own_stat()?;
        Ok(((stat.st_mtime, nanoseconds(stat.st_mtime_nsec)), (stat.st_ctime, nanoseconds(stat.st_ctime_nsec))))
    }

    /// Sets the time of the last content change to a second ago. So a later change by any program sets another time.
    pub(crate) fn set_back_mtime(&self) -> io::Result<Time> {
        let past = SystemTime::now() - Duration::from_secs(1);
        let since = past.duration_since(SystemTime::UNIX_EPOCH).map_err(io::Error::other)?;
        let seconds = i64::try_from(since.as_secs()).map_err(io::Error::other)?;
        let modified = TimeSpec::new(seconds, i64::from(since.subsec_nanos()));
        futimens(&self.directory.dir, &TimeSpec::UTIME_OMIT, &modified)?;
        Ok((seconds, since.subsec_nanos()))
    }

    /// Makes an anonymous file with `content`.
    #[expect(clippy::disallowed_methods, reason = "cap-std has no anonymous files")]
    fn draft<'a>(&self, content: &'a str) -> Result<Draft<'a>> {
        let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        match openat(&self.directory.dir, ".", flags, Mode::S_IRUSR | Mode::S_IWUSR) {
            // Some file systems have no anonymous files.
            Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::EINVAL) => self.named_draft(content),
            opened => self.written(opened.map(File::from).map_err(io::Error::from), content, false),
        }
    }

    /// Makes a draft under a temporary name. The caller holds the lock, so only one process uses the name.
    fn named_draft<'a>(&self, content: &'a str) -> Result<Draft<'a>> {
        self.written(self.directory.dir.file(TEMPORARY_LEASE, OpenMode::Rewrite(0o600)), content, true)
    }

    fn written<'a>(&self, opened: io::Result<File>, content: &'a str, named: bool) -> Result<Draft<'a>> {
        let filled = opened.and_then(|mut file| {
            file.write_all(content.as_bytes())?;
            let id = FileId::of(&file.metadata()?);
            Ok(Draft { file, content, id, named })
        });
        filled.map_err(|error| {
            if named {
                // The failure of the write is the error to report. The file is overwritten or removed later.
                let _ = self.directory.unlink(TEMPORARY_LEASE);
            }
            StateError::io("write a lease in", self.directory.path_of("lock"), error)
        })
    }

    /// Makes the draft visible as `name`. Returns the draft again, because the name may be taken.
    fn publish<'a>(&self, draft: Draft<'a>, name: &str) -> Result<(Draft<'a>, bool)> {
        if draft.named {
            return self.publish_named(draft, name);
        }
        let directory = &self.directory.dir;
        // The file is linked by its descriptor. Older kernels allow this only to privileged processes. Then the file's
        // path in /proc is used.
        let mut linked = linkat(&draft.file, "", directory, name, AtFlags::AT_EMPTY_PATH);
        if matches!(linked, Err(Errno::ENOENT | Errno::EPERM | Errno::EINVAL)) {
            let path = format!("/proc/self/fd/{}", draft.file.as_raw_fd());
            linked = linkat(directory, path.as_str(), directory, name, AtFlags::AT_SYMLINK_FOLLOW);
        }
        match linked {
            Ok(()) => Ok((draft, true)),
            Err(Errno::EEXIST) => Ok((draft, false)),
            Err(Errno::ENOENT | Errno::EPERM | Errno::EINVAL | Errno::EOPNOTSUPP | Errno::EXDEV) => {
                self.publish_named(self.named_draft(draft.content)?, name)
            }
            Err(errno) => Err(StateError::io("link", self.directory.path_of(name), errno)),
        }
    }

    fn publish_named<'a>(&self, draft: Draft<'a>, name: &str) -> Result<(Draft<'a>, bool)> {
        let directory = &self.directory.dir;
        // nix has this call for glibc only.
        match renameat_with(directory, TEMPORARY_LEASE, directory, name, RenameFlags::NOREPLACE) {
            Ok(()) => Ok((draft, true)),
            Err(rustix::io::Errno::EXIST) => Ok((draft, false)),
            Err(errno) => Err(StateError::io("rename to", self.directory.path_of(name), errno)),
        }
    }
}

/// Returns the address of which `name` is the canonical text.
fn address_of(name: &str) -> Option<IpAddr> {
    name.parse::<IpAddr>().ok().filter(|ip| ip.to_string() == name)
}

fn last_name(set: usize) -> String {
    format!("last_reserved_ip.{set}")
}

fn nanoseconds(value: i64) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::tests::Scratch;

    fn open(scratch: &Scratch) -> LeaseDir {
        LeaseDir::open(&scratch.path("data"), "net", true).unwrap().unwrap()
    }

    #[test]
    fn a_named_draft_does_what_an_anonymous_one_does() {
        let scratch = Scratch::new();
        let directory = open(&scratch);
        let draft = directory.named_draft("box\r\neth0").unwrap();
        let (draft, placed) = directory.publish(draft, "10.0.0.1").unwrap();
        assert!(placed);
        assert!(
            matches!(directory.read("10.0.0.1".parse().unwrap()).unwrap(), Slot::Held(text, _) if text == "box\r\neth0")
        );
        drop(draft);
        let draft = directory.named_draft("other\r\neth0").unwrap();
        let (draft, placed) = directory.publish(draft, "10.0.0.1").unwrap();
        assert!(!placed, "an existing lease was replaced");
        let (_, placed) = directory.publish(draft, "10.0.0.2").unwrap();
        assert!(placed);
        assert_eq!(directory.addresses().unwrap().len(), 2);
        let anonymous = directory.draft("third\r\neth0").unwrap();
        assert!(!anonymous.named, "this file system was meant to have anonymous files");
        assert!(!directory.publish(anonymous, "10.0.0.1").unwrap().1);
    }

    #[test]
    fn bad_names_and_open_directories_are_refused() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = Scratch::new();
        for name in ["", ".", "..", "a/b", "/"] {
            assert!(LeaseDir::open(&scratch.path("data"), name, true).is_err(), "{name:?}");
        }
        drop(open(&scratch));
        let inner = scratch.path("data/net");
        std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = LeaseDir::open(&scratch.path("data"), "net", true).err().unwrap();
        assert!(error.to_string().contains("chmod o-w"), "{error}");
        std::os::unix::fs::symlink("/", scratch.path("data/link")).unwrap();
        assert!(LeaseDir::open(&scratch.path("data"), "link", false).is_err());
    }

    #[test]
    fn what_is_no_lease_is_taken_or_torn() {
        let scratch = Scratch::new();
        let directory = open(&scratch);
        let at = |name: &str| scratch.path(&format!("data/net/{name}"));
        std::fs::write(at("10.0.0.1"), "").unwrap();
        std::fs::write(at("10.0.0.2"), "\0\0\0").unwrap();
        std::fs::write(at("10.0.0.3"), " \r\n").unwrap();
        for last in 1..=3 {
            assert!(matches!(directory.read([10, 0, 0, last].into()).unwrap(), Slot::Torn), "{last}");
        }
        std::os::unix::fs::symlink("/etc/hostname", at("10.0.0.4")).unwrap();
        std::fs::create_dir(at("10.0.0.5")).unwrap();
        nix::unistd::mkfifo(&at("10.0.0.6"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for last in 4..=6 {
            assert!(matches!(directory.read([10, 0, 0, last].into()).unwrap(), Slot::Foreign), "{last}");
        }
        std::fs::write(at("FD00::5"), "x").unwrap();
        std::fs::write(at("last_reserved_ip.0"), "10.0.0.1\n").unwrap();
        assert_eq!(directory.addresses().unwrap().len(), 6);
        assert_eq!(directory.last_reserved(0), None, "the native plugin can't parse this either");
    }
}
