//! The files and directories of the host, and their required owners.
//!
//! All files that are executed or that decide (code, policy, records) must belong to root or to the effective user. All
//! directories above these files must have the same owners. `postern_state::trust` has the rules, because they hold for
//! leases too.

use crate::plugin_error::PluginError;
use nix::errno::Errno;
use nix::sys::stat::{SFlag, fstat, stat};
use nix::unistd::{AccessFlags, access, geteuid};
use postern_state::{Dir, OpenMode, if_present, is_passing, kind, trust_stat};
pub use postern_state::{trust, trust_file};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the directory with code and policies, beside the executable.
pub const CATALOG: &str = "postern.d";

/// The places of the catalog if the catalog is not beside the executable. So a copy of the host executable in a CNI bin
/// directory finds the files of `make install`.
pub const INSTALLED: [&str; 2] = ["/usr/local/lib/postern/postern.d", "/usr/lib/postern/postern.d"];

/// The directory of records and of notes on node objects and verified code. The directory must exist exactly as long as
/// the kernel's state.
pub const STATE: &str = "/run/postern";

/// The directory of data that must survive a reboot: the index of leases, which shows leases of an earlier boot.
pub const LIBRARY: &str = "/var/lib/postern";

/// The directory of the audit log, which outlives the objects that it names.
pub const LOGS: &str = "/var/log/postern";

/// The directory with the versions of an installation. Each version has its own programs and catalog.
pub const VERSIONS: &str = "versions";

/// Returns the catalog of this executable. The catalog is beside the executable, in its installation, or in one of the
/// usual places. A service may run longer than its version is installed, and then uses the catalog of the next version.
///
/// # Errors
/// There is no catalog; the error names the places.
pub fn catalog() -> Result<PathBuf, PluginError> {
    catalog_of(&own_file()?)
}

#[expect(clippy::disallowed_methods, reason = "a link of the kernel's own")]
fn own_file() -> Result<PathBuf, PluginError> {
    std::fs::read_link("/proc/self/exe")
        .map_err(|e| PluginError(format!("cannot find out where postern itself is: {e}")))
}

/// Returns the directory of this executable's installation, with all its versions.
pub fn installation() -> Option<PathBuf> {
    installation_of(&own_file().ok()?)
}

fn installation_of(exe: &Path) -> Option<PathBuf> {
    let versions = exe.parent()?.parent()?;
    if versions.file_name()? == VERSIONS { versions.parent().map(Path::to_owned) } else { None }
}

fn catalog_of(exe: &Path) -> Result<PathBuf, PluginError> {
    let beside = exe.parent().unwrap_or(Path::new("/")).join(CATALOG);
    let next = installation_of(exe).map(|directory| directory.join(CATALOG));
    let candidates = std::iter::once(beside).chain(next).chain(INSTALLED.into_iter().map(PathBuf::from));
    let mut looked = Vec::new();
    for candidate in candidates {
        if is_directory(&candidate) {
            return Ok(candidate);
        }
        looked.push(candidate.display().to_string());
    }
    let looked = looked.join(" or ");
    Err(PluginError(format!("there is no catalog of plugins at {looked}; install Postern again")))
}

/// Returns the data that distinguish a directory from a later directory with the same path: device, inode, and the time
/// of the last change.
pub fn identity(directory: &Path) -> Option<(u64, u64, i64, i64)> {
    let stat = stat(directory).ok()?;
    Some((stat.st_dev, stat.st_ino, stat.st_ctime, stat.st_ctime_nsec))
}

/// The directories that a run writes to. Each directory was checked: no other user can write to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// [`STATE`], or a directory below `XDG_RUNTIME_DIR` for a user who may not write to [`STATE`] (rootless runtimes).
    pub state: PathBuf,
    /// [`LIBRARY`], or the state directory for a user who may not write to [`LIBRARY`].
    pub library: PathBuf,
    /// [`LOGS`], or the state directory for a user who may not write to [`LOGS`].
    pub logs: PathBuf,
}

impl Places {
    /// Returns the directory of the index of leases. A confined gate writes to no other file of the library: the
    /// operator's catalog is there too.
    pub fn lease_index(&self) -> PathBuf {
        self.library.join("leases")
    }

    /// Finds the directories, and makes missing directories.
    ///
    /// # Errors
    /// No directory can be written, or another user could write to one of them. The error has a hint.
    pub fn find() -> Result<Self, PluginError> {
        let state = PathBuf::from(STATE);
        // A directory on a read-only disk is used too: its records can be read, and their effects can be removed.
        let state = if usable(&state) || is_blocked(&state) { state } else { below_runtime_dir()? };
        trust(&state)?;
        let library = PathBuf::from(LIBRARY);
        let library = if usable(&library) { library } else { state.clone() };
        trust(&library)?;
        let logs = log_directory(&state)?;
        Ok(Self { state, library, logs })
    }
}

/// True if the directory exists and no user may write to it: its disk is read-only, or it is immutable (chattr(1)).
/// Such a directory still belongs to this user.
pub fn is_blocked(directory: &Path) -> bool {
    matches!(writing(directory), Err(Errno::EROFS | Errno::EPERM))
}

/// Returns the directory of the audit log, for a caller without [`Places`]: the caller's state directory may have been
/// refused.
///
/// # Errors
/// There is no directory that only this user can write to.
pub fn logs() -> Result<PathBuf, PluginError> {
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

/// Returns the reason why the log is not in [`LOGS`], as a text for people; `None` if the log is in [`LOGS`]. Otherwise
/// the log is in the state directory, and is lost when the node reboots.
pub fn why_logs_moved(logs: &Path) -> Option<String> {
    if logs == Path::new(LOGS) {
        return None;
    }
    let why = writing(Path::new(LOGS)).err().map_or("", |errno| errno.desc());
    let user = geteuid();
    Some(format!("the audit log is in {} and not in {LOGS}, which user {user} can't write to: {why}", logs.display()))
}

/// Returns [`LOGS`], or the state directory. If the state directory is used, a message says so when the log begins.
fn log_directory(state: &Path) -> Result<PathBuf, PluginError> {
    let logs = PathBuf::from(LOGS);
    let logs = if usable(&logs) { logs } else { state.to_owned() };
    // Only the directory itself is checked: on many systems `/var/log` belongs to a group of loggers. The check is
    // repeated when the log is opened.
    trust_file(&logs, directory(&logs)?)?;
    if logs == state && !is_there(&logs.join(crate::LOG)) {
        // The message comes once, when the log begins in the state directory. `postern log` and `postern doctor` repeat
        // it.
        let why = why_logs_moved(&logs).unwrap_or_default();
        crate::say!("postern: {why}");
    }
    Ok(logs)
}

/// Returns the state directory of a user who may not write to [`STATE`].
fn below_runtime_dir() -> Result<PathBuf, PluginError> {
    let dir = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    let own = dir.map(|dir| PathBuf::from(dir).join("postern"));
    own.filter(|own| usable(own)).ok_or_else(|| {
        PluginError(format!(
            "user {} may not write to {STATE}, where records are kept; run postern as root, or set XDG_RUNTIME_DIR to a \
             directory of this user's",
            geteuid()
        ))
    })
}

/// Opens a directory, but not through a symbolic link at this path.
pub fn directory(path: &Path) -> Result<Dir, PluginError> {
    Dir::open_itself(path).map_err(|reason| {
        PluginError(format!("{}: {reason}; it has to be a directory, and no symbolic link", path.display()))
    })
}

/// True if the directory exists or can be made, and can be written.
fn usable(directory: &Path) -> bool {
    let there = is_directory(directory) || Dir::make(directory, 0o700).is_ok();
    // A temporary error is ignored, because each run must use the same place.
    there && writing(directory).map_or_else(is_passing, |()| true)
}

/// True if a path leads to an existing file.
pub fn is_there(path: &Path) -> bool {
    stat(path).is_ok()
}

/// True if a path leads to a regular file.
pub(crate) fn is_file(path: &Path) -> bool {
    stat(path).is_ok_and(|stat| kind(&stat) == SFlag::S_IFREG)
}

/// True if a path leads to a directory.
pub fn is_directory(path: &Path) -> bool {
    stat(path).is_ok_and(|stat| kind(&stat) == SFlag::S_IFDIR)
}

fn writing(directory: &Path) -> nix::Result<()> {
    access(directory, AccessFlags::W_OK | AccessFlags::X_OK)
}

/// An open directory that [`trust`] has accepted. Files are opened in this directory, even if another directory gets
/// its path meanwhile.
#[derive(Debug)]
pub struct TrustedDir {
    dir: Dir,
    path: PathBuf,
}

impl TrustedDir {
    /// Opens the directory; `None` if it does not exist.
    pub fn open(path: &Path) -> Result<Option<Self>, PluginError> {
        let opened = if_present(Dir::open(path)).map_err(|e| PluginError::unreadable(path, e))?;
        Ok(opened.map(|dir| Self { dir, path: path.to_owned() }))
    }

    /// Opens a regular file of the directory. The file must be in the directory itself, and no other user may be able
    /// to change it. `None` if the file is missing.
    pub fn file(&self, name: &str) -> Result<Option<File>, PluginError> {
        let path = self.path.join(name);
        let opened = self.dir.file(name, OpenMode::Read);
        if opened.as_ref().is_err_and(is_link) {
            return Err(PluginError(format!(
                "{} is a symbolic link: users who can write to the target could change the file; put the file itself \
                 at this path (install Postern again, or `postern add FILE.wasm --policy FILE`)",
                path.display()
            )));
        }
        let opened = if_present(opened).map_err(|e| PluginError::unreadable(&path, e))?;
        let Some(file) = opened else { return Ok(None) };
        let stat = fstat(&file).map_err(|e| PluginError::unreadable(&path, e))?;
        if kind(&stat) != SFlag::S_IFREG {
            let path = path.display();
            return Err(PluginError(format!("{path} is no regular file; remove it, and install the plugin again")));
        }
        trust_stat(&path, &stat, false)?;
        Ok(Some(file))
    }
}

/// True if a file was not opened because it is a symbolic link.
pub(crate) fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ELOOP as i32)
}

/// Opens a file like [`TrustedDir::file`], in the directory of its path.
pub fn open_trusted(path: &Path) -> Result<Option<File>, PluginError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(PluginError::unreadable(path, "its name is not text"));
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

    #[test]
    fn a_service_finds_the_catalog_of_the_next_version() {
        let prefix = std::env::temp_dir().join(format!("postern-next-version-{}", std::process::id()));
        let old = prefix.join("versions/0.1.0-old");
        std::fs::create_dir_all(old.join(CATALOG)).unwrap();
        std::fs::create_dir_all(prefix.join("versions/0.1.0-new").join(CATALOG)).unwrap();
        symlink("versions/0.1.0-new/postern.d", prefix.join(CATALOG)).unwrap();
        let exe = old.join("postern-dhcpd");
        assert_eq!(catalog_of(&exe), Ok(old.join(CATALOG)));
        std::fs::remove_dir_all(&old).unwrap();
        // The kernel shows this name for a deleted file.
        assert_eq!(catalog_of(&old.join("postern-dhcpd (deleted)")), Ok(prefix.join(CATALOG)));
        assert_eq!(installation_of(&exe), Some(prefix.clone()));
        // This directory has no versions.
        assert_eq!(installation_of(&prefix.join("bin/postern-dhcpd")), None);
        std::fs::remove_dir_all(&prefix).unwrap();
    }
}
