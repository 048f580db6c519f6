//! Directories of records, notes and leases, with the errors for their defects, and locks that obey a deadline.

use crate::dir::{Dir, OpenMode, if_present};
use crate::error::{Result, StateError};
use crate::trust::trust_owner;
use base16ct::lower::encode_string as hex;
use nix::errno::Errno;
use nix::sys::stat::FileStat;
use sha2::{Digest, Sha256};
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest file that is read whole, in bytes: longer than any container ID, record or note.
pub(crate) const READ_LIMIT: u64 = 2 << 20;

/// An open directory; its path is used only in messages.
pub(crate) struct Directory {
    pub(crate) dir: Dir,
    path: PathBuf,
}

impl Directory {
    /// Opens `path`; `None` if it doesn't exist. Symbolic links in the path were made by the operator and are followed.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>> {
        Self::opened(Dir::open(path), path.to_owned())
    }

    /// Opens the directory `path` itself, never the target of a link; `None` if it doesn't exist.
    pub(crate) fn open_itself(path: &Path) -> Result<Option<Self>> {
        Self::opened(Dir::open_itself(path), path.to_owned())
    }

    /// Opens the directory `path`, and makes missing directories on the way.
    pub(crate) fn create(path: &Path, mode: u32) -> Result<Self> {
        if let Some(directory) = Self::open(path)? {
            return Ok(directory);
        }
        Dir::make(path, mode).map_err(|error| StateError::io("create directory", path, error))?;
        Self::open(path)?.ok_or_else(|| StateError::io("open directory", path, Errno::ENOENT))
    }

    /// Opens the subdirectory `name`. A missing subdirectory is made with the mode `create`; without `create` the
    /// result is `None`. The subdirectory can be listed, and its times can be set.
    pub(crate) fn subdirectory(&self, name: &str, create: Option<u32>) -> Result<Option<Self>> {
        let path = self.path_of(name);
        if let Some(mode) = create {
            let made = self.dir.make_directory(name, mode);
            made.map_err(|error| StateError::io("create directory", &path, error))?;
        }
        Self::opened(self.dir.directory(name), path)
    }

    fn opened(opened: io::Result<Dir>, path: PathBuf) -> Result<Option<Self>> {
        let opened = if_present(opened).map_err(|error| StateError::io("open directory", &path, error))?;
        Ok(opened.map(|dir| Self { dir, path }))
    }

    /// Opens `<root>/<name>` in a state root that only Postern uses; `None` if it is absent.
    pub(crate) fn state(root: &Path, name: &str) -> Result<Option<Self>> {
        let Some(root) = Self::open(root)? else { return Ok(None) };
        root.trusted()?.subdirectory(name, None)?.map(Self::trusted).transpose()
    }

    /// As [`Directory::state`], and makes both directories with mode 0700 if absent.
    pub(crate) fn make_state(root: &Path, name: &str) -> Result<Self> {
        let made = Self::create(root, 0o700)?.trusted()?.subdirectory(name, Some(0o700))?;
        made.ok_or_else(|| StateError::io("open", root.join(name), Errno::ENOENT))?.trusted()
    }

    /// Refuses a directory in which a user other than root and this process's user could put or replace files.
    pub(crate) fn trusted(self) -> Result<Self> {
        let stat = self.own_stat()?;
        trust_owner(&self.path, &stat, false).map_err(|reason| StateError::untrusted(&self.path, reason))?;
        self.refuse_world_writable_by(&stat)
    }

    /// Refuses a directory in which every user could replace other users' files. The sticky bit, as on `/tmp`, prevents
    /// this: only a file's owner can then replace the file.
    pub(crate) fn refuse_replaceable(self) -> Result<Self> {
        let stat = self.own_stat()?;
        if stat.st_mode & 0o1000 != 0 && trust_owner(&self.path, &stat, true).is_ok() {
            return Ok(self);
        }
        self.refuse_world_writable_by(&stat)
    }

    fn refuse_world_writable_by(self, stat: &FileStat) -> Result<Self> {
        let mode = stat.st_mode & 0o7777;
        let way_out = match (mode & 0o002 != 0, mode & 0o1000 != 0) {
            (false, _) => return Ok(self),
            (true, false) => "remove this right (chmod o-w)",
            // The directory may be for temporary files of all users.
            (true, true) => "name a separate directory",
        };
        Err(StateError::untrusted(&self.path, format!("everybody may write to it (mode {mode:o}); {way_out}")))
    }

    /// Returns the attributes of the directory.
    pub(crate) fn own_stat(&self) -> Result<FileStat> {
        self.dir.own_stat().map_err(|error| StateError::io("stat", &self.path, error))
    }

    /// Returns the path of `name`, for messages.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens the file `name`; `None` if absent.
    pub(crate) fn file(&self, name: &str, how: OpenMode) -> Result<Option<File>> {
        if_present(self.dir.file(name, how)).map_err(|error| StateError::io("open", self.path_of(name), error))
    }

    /// Opens the file `name`, and waits for its lock. `how` must make a missing file.
    pub(crate) fn locked(&self, name: &str, how: OpenMode, deadline: Instant) -> Result<File> {
        let path = self.path_of(name);
        let file = self.dir.file(name, how).map_err(|error| StateError::io("open", &path, error))?;
        lock_before(&file, &path, deadline)?;
        Ok(file)
    }

    /// Returns the content of the regular file `name`; `None` if absent.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.file(name, OpenMode::Read)? else { return Ok(None) };
        read_all(&file).map(Some).map_err(|error| StateError::io("read", self.path_of(name), error))
    }

    /// Puts `content` at `name` in one step and replaces an existing file. No other process may use the name
    /// `temporary` meanwhile.
    pub(crate) fn replace(&self, name: &str, temporary: &str, content: &[u8]) -> Result<()> {
        let replaced = self.dir.replace(name, temporary, content);
        replaced.map_err(|error| StateError::io("write", self.path_of(name), error))
    }

    /// Moves `from` over `to`, both in this directory.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.dir.rename(from, to).map_err(|error| StateError::io("rename", self.path_of(from), error))
    }

    /// Removes `name`; true if it was there.
    pub(crate) fn unlink(&self, name: &str) -> Result<bool> {
        self.dir.unlink(name).map_err(|error| StateError::io("unlink", self.path_of(name), error))
    }

    /// Returns the attributes of `name` itself; `None` if absent.
    pub(crate) fn stat(&self, name: &str) -> Result<Option<FileStat>> {
        self.dir.stat(name).map_err(|error| StateError::io("stat", self.path_of(name), error))
    }

    /// Returns all names in this directory except `.` and `..`.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        self.names_that(|_| true)
    }

    /// Returns the `wanted` names. A directory may have thousands of names, and only a few are wanted.
    pub(crate) fn names_that(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        self.dir.names_that(wanted).map_err(|error| StateError::io("list", &self.path, error))
    }
}

/// Returns the content of a regular file, up to [`READ_LIMIT`].
pub(crate) fn read_all(file: &File) -> io::Result<Vec<u8>> {
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    // The spare room lets one or two calls of read(2) find the end of the file.
    let mut content = Vec::with_capacity(usize::try_from(meta.len().min(READ_LIMIT)).unwrap_or_default() + 1);
    file.take(READ_LIMIT + 1).read_to_end(&mut content)?;
    if content.len() as u64 > READ_LIMIT {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than any file of Postern"));
    }
    Ok(content)
}

/// Returns a short hash of a name.
pub(crate) fn short_hash(name: &str) -> String {
    let mut hex = hex(&Sha256::digest(name.as_bytes()));
    hex.truncate(16);
    hex
}

/// Takes the exclusive `flock` of `file` before `deadline`.
///
/// Only a signal can interrupt a blocking flock(2). Repeated attempts need neither a signal handler nor a thread.
pub(crate) fn lock_before(file: &File, path: &Path, deadline: Instant) -> Result<()> {
    let mut pause = Duration::from_millis(1);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(TryLockError::Error(error)) => return Err(StateError::io("lock", path, error)),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(StateError::Locked { path: path.to_owned(), holder: holder(file, path) });
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Returns a text about the process that holds the `flock` of a file. A confined gate may not read the kernel's list
/// of locks.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel's own")]
fn holder(file: &File, path: &Path) -> String {
    let listed = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let process = file.metadata().ok().and_then(|meta| holder_in(&listed, meta.dev(), meta.ino()));
    match process {
        Some(process) => format!("process {process} holds the lock"),
        None => format!("`fuser {}` tells which process holds the lock", path.display()),
    }
}

/// Returns the process that holds the `flock` of a file, by the kernel's list. In the list, a process that this
/// process can't see has the number 0.
fn holder_in(listed: &str, device: u64, inode: u64) -> Option<u32> {
    let file = format!("{:02x}:{:02x}:{inode}", nix::sys::stat::major(device), nix::sys::stat::minor(device));
    listed.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, held, ..] = words.as_slice() else { return None };
        process.parse().ok().filter(|process| *held == file && *process != 0)
    })
}

/// Returns the first bytes of the SHA-256 over the parts. Each part is hashed after its length, so that the parts can't
/// run together.
pub(crate) fn digest<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut bytes = [0; N];
    bytes.iter_mut().zip(hasher.finalize()).for_each(|(to, from)| *to = from);
    bytes
}
