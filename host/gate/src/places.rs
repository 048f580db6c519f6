//! Where things are, and whom they must belong to.
//!
//! What is executed or decides (code, policy, records) must belong to root or to the effective user, and so must the way to
//! it: `postern_state::trust` says how, since leases are held to the same.

use nix::errno::Errno;
use nix::sys::stat::{SFlag, fstat, stat};
use nix::unistd::{AccessFlags, access, geteuid};
use postern_state::{Dir, How, TrustError, kind, trust_stat};
pub use postern_state::{trust, trust_file};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Why a file or directory is not used, with the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// Others could have changed it.
    #[error(transparent)]
    Untrusted(#[from] TrustError),
    /// `/proc` does not tell which file this program is.
    #[error("cannot find out where postern itself is: {0}")]
    Nameless(String),
    /// No catalog where one is looked for.
    #[error("there is no catalog of plugins at {0}; `make install` puts one there")]
    NoCatalog(String),
    /// No directory for records that this user may write to.
    #[error(
        "user {0} may not write to {STATE}, where records are kept; run postern as root, or set XDG_RUNTIME_DIR to a \
         directory of this user's"
    )]
    NotWritable(u32),
    /// No directory.
    #[error("{}: {reason}; it has to be a directory, and no link to one", .path.display())]
    NoDirectory {
        /// What is there instead.
        path: PathBuf,
        /// What the kernel said.
        reason: String,
    },
    /// A link where a file belongs.
    #[error(
        "{} is a symbolic link, and whoever can write where it leads would decide; put the file itself there (`make \
         install`, or `postern add FILE.wasm --policy FILE`)",
        .0.display()
    )]
    Link(PathBuf),
    /// No file at all.
    #[error("{} is no regular file; remove it, and install the plugin again", .0.display())]
    Irregular(PathBuf),
    /// It can't be read.
    #[error("{}: {reason}", .path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the kernel said.
        reason: String,
    },
}

impl PlaceError {
    /// It can't be read.
    pub(crate) fn unreadable(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::Unreadable { path: path.to_owned(), reason: reason.to_string() }
    }
}

/// Name of the directory beside the executable that holds code and policy.
pub const CATALOG: &str = "postern.d";

/// Where the catalog is looked for if it isn't beside the executable: a copy of the host in a CNI bin directory then
/// still finds what `make install` placed.
pub const INSTALLED: [&str; 2] = ["/usr/local/lib/postern/postern.d", "/usr/lib/postern/postern.d"];

/// Records, notes on node objects and on verified code: it must live exactly as long as the kernel's state.
pub const STATE: &str = "/run/postern";

/// What has to survive a reboot: the index of leases, from which those of an earlier boot are recognised.
pub const LIBRARY: &str = "/var/lib/postern";

/// The audit log, which outlives what it tells of.
pub const LOGS: &str = "/var/log/postern";

/// The catalog of this executable: beside it, or where it was installed.
///
/// # Errors
/// There is none; the error names where it was looked for.
#[expect(clippy::disallowed_methods, reason = "a link of the kernel's own")]
pub fn catalog() -> Result<PathBuf, PlaceError> {
    let exe = std::fs::read_link("/proc/self/exe").map_err(|e| PlaceError::Nameless(e.to_string()))?;
    let beside = exe.parent().unwrap_or(Path::new("/")).join(CATALOG);
    let candidates = std::iter::once(beside).chain(INSTALLED.into_iter().map(PathBuf::from));
    let mut looked = Vec::new();
    for candidate in candidates {
        if is_directory(&candidate) {
            return Ok(candidate);
        }
        looked.push(candidate.display().to_string());
    }
    Err(PlaceError::NoCatalog(looked.join(" or ")))
}

/// What tells a directory from another one that takes its place: device, inode, and the time of its last change.
pub fn identity(directory: &Path) -> Option<(u64, u64, i64, i64)> {
    let stat = stat(directory).ok()?;
    Some((stat.st_dev, stat.st_ino, stat.st_ctime, stat.st_ctime_nsec))
}

/// The directories that a run writes to, each one proven to be nobody else's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// [`STATE`], or below `XDG_RUNTIME_DIR` for a user who may not write there (rootless runtimes).
    pub state: PathBuf,
    /// [`LIBRARY`], or the state directory for a user who may not write there.
    pub library: PathBuf,
    /// [`LOGS`], or the state directory for a user who may not write there.
    pub logs: PathBuf,
}

impl Places {
    /// Finds them, and makes those that are missing.
    ///
    /// # Errors
    /// There is none that can be written, or somebody else could write to one, and the way out.
    pub fn find() -> Result<Self, PlaceError> {
        let state = PathBuf::from(STATE);
        // On a disk that has become read-only nothing can be made, but what is there can be read, and what it lists removed.
        let state = if usable(&state) || is_blocked(&state) { state } else { below_runtime_dir()? };
        trust(&state)?;
        let library = PathBuf::from(LIBRARY);
        let library = if usable(&library) { library } else { state.clone() };
        trust(&library)?;
        let logs = logs_or(&state)?;
        Ok(Self { state, library, logs })
    }
}

/// Whether the directory is there and nobody at all may write to it: its disk is read-only, or it must not be changed
/// (chattr(1)). Its user is this one nevertheless.
pub fn is_blocked(directory: &Path) -> bool {
    matches!(writing(directory), Err(Errno::EROFS | Errno::EPERM))
}

/// The directory of the audit log, for who has no other place: what it is refused for may be its state directory.
///
/// # Errors
/// There is none that nobody else could write to.
pub fn logs() -> Result<PathBuf, PlaceError> {
    let own = PathBuf::from(LOGS);
    if usable(&own) {
        trust_file(&own, directory(&own)?)?;
        return Ok(own);
    }
    let state = PathBuf::from(STATE);
    let state = if usable(&state) { state } else { below_runtime_dir()? };
    trust(&state)?;
    Ok(state)
}

/// Why the log is not in [`LOGS`]: a text for people, or `None` if it is there. Elsewhere it goes with the state, which is
/// gone when the machine is started the next time.
pub fn why_logs_moved(logs: &Path) -> Option<String> {
    if logs == Path::new(LOGS) {
        return None;
    }
    let why = writing(Path::new(LOGS)).err().map_or("", |errno| errno.desc());
    let user = geteuid();
    Some(format!("the audit log is in {} and not in {LOGS}, which user {user} can't write to: {why}", logs.display()))
}

/// [`LOGS`], or the state directory. That it had to move is said when the log begins there.
fn logs_or(state: &Path) -> Result<PathBuf, PlaceError> {
    let logs = PathBuf::from(LOGS);
    let logs = if usable(&logs) { logs } else { state.to_owned() };
    // Not the way to it: `/var/log` belongs to a group of loggers on many systems. Who opens the log looks again.
    trust_file(&logs, directory(&logs)?)?;
    if logs == state && !is_there(&logs.join(crate::LOG)) {
        // Once, when it begins there: `postern log` and `postern doctor` go on saying it.
        let why = why_logs_moved(&logs).unwrap_or_default();
        crate::say!("postern: {why}");
    }
    Ok(logs)
}

/// The state directory of a user who may not write to [`STATE`].
fn below_runtime_dir() -> Result<PathBuf, PlaceError> {
    let dir = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    let own = dir.map(|dir| PathBuf::from(dir).join("postern"));
    own.filter(|own| usable(own)).ok_or_else(|| PlaceError::NotWritable(geteuid().as_raw()))
}

/// Opens a directory itself, never what a link of that name leads to.
///
/// # Errors
/// [`PlaceError::NoDirectory`].
pub fn directory(path: &Path) -> Result<Dir, PlaceError> {
    Dir::open_itself(path).map_err(|e| PlaceError::NoDirectory { path: path.to_owned(), reason: e.to_string() })
}

/// Whether the directory is there, or can be made, and can be written.
fn usable(directory: &Path) -> bool {
    let there = is_directory(directory) || Dir::make(directory, 0o700).is_ok();
    there && writing(directory).is_ok()
}

/// Whether a path leads to anything.
pub fn is_there(path: &Path) -> bool {
    stat(path).is_ok()
}

/// Whether a path leads to a regular file.
pub(crate) fn is_file(path: &Path) -> bool {
    stat(path).is_ok_and(|stat| kind(&stat) == SFlag::S_IFREG)
}

/// Whether a path leads to a directory.
pub fn is_directory(path: &Path) -> bool {
    stat(path).is_ok_and(|stat| kind(&stat) == SFlag::S_IFDIR)
}

fn writing(directory: &Path) -> nix::Result<()> {
    access(directory, AccessFlags::W_OK | AccessFlags::X_OK)
}

/// A directory that [`trust`] has accepted, open: what is opened in it is of this directory, whatever takes its place.
#[derive(Debug)]
pub struct TrustedDir {
    dir: Dir,
    path: PathBuf,
}

impl TrustedDir {
    /// Opens it; `None` if there is no such directory.
    ///
    /// # Errors
    /// [`PlaceError::Unreadable`].
    pub fn open(path: &Path) -> Result<Option<Self>, PlaceError> {
        match Dir::open(path) {
            Ok(dir) => Ok(Some(Self { dir, path: path.to_owned() })),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(PlaceError::unreadable(path, e)),
        }
    }

    /// Opens a file of it: a regular one, in the directory itself, that nobody else can change. `None` if there is no such
    /// file.
    ///
    /// # Errors
    /// As [`trust`].
    pub fn file(&self, name: &str) -> Result<Option<File>, PlaceError> {
        let path = self.path.join(name);
        let file = match self.dir.file(name, How::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) if is_link(&e) => return Err(PlaceError::Link(path)),
            Err(e) => return Err(PlaceError::unreadable(&path, e)),
        };
        let stat = fstat(&file).map_err(|e| PlaceError::unreadable(&path, e))?;
        if kind(&stat) != SFlag::S_IFREG {
            return Err(PlaceError::Irregular(path));
        }
        trust_stat(&path, &stat, false)?;
        Ok(Some(file))
    }
}

/// Whether a file was not opened because it is a link.
pub(crate) fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ELOOP as i32)
}

/// Opens a file as [`TrustedDir::file`], of the directory that its path names.
///
/// # Errors
/// As [`trust`].
pub fn open_trusted(path: &Path) -> Result<Option<File>, PlaceError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(PlaceError::unreadable(path, "its name is not text"));
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    TrustedDir::open(parent)?.map(|directory| directory.file(name)).transpose().map(Option::flatten)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn opens_a_regular_file_and_nothing_else() {
        let dir = std::env::temp_dir().join(format!("postern-places-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("policy.toml");
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        symlink(&file, dir.join("link.toml")).unwrap();
        assert!(open_trusted(&dir.join("link.toml")).unwrap_err().to_string().contains("is a symbolic link"));
        assert!(open_trusted(&dir).unwrap_err().to_string().contains("is no regular file"));
        assert!(open_trusted(&dir.join("none")).unwrap().is_none());
        assert!(open_trusted(&file).unwrap().is_some());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
