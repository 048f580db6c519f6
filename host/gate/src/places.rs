//! Where things are, and whom they must belong to.
//!
//! What is executed or decides (code, policy) must belong to root or to the effective user, and no directory on the way
//! may be writable by others: whoever can put a file there has the host's privileges.

use nix::sys::stat::{FileStat, Mode, SFlag, fstatat, lstat};
use nix::unistd::{AccessFlags, access, geteuid};
use std::fs::DirBuilder;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Name of the directory beside the executable that holds code and policy.
pub const CATALOG: &str = "postern.d";

/// Where the catalog is looked for if it isn't beside the executable: a copy of the host in a CNI bin directory then
/// still finds what `make install` placed.
pub const INSTALLED: [&str; 2] = ["/usr/local/lib/postern/postern.d", "/usr/lib/postern/postern.d"];

/// Operator's own policy files; tables found here replace those of the shipped file of the same name.
pub const OPERATOR_POLICY: &str = "/etc/postern/policy";

/// Records, the lease index and the audit log: it must live exactly as long as the kernel's state.
pub const STATE: &str = "/run/postern";

/// What has to survive a reboot: the index of leases, from which those of an earlier boot are recognised.
pub const LIBRARY: &str = "/var/lib/postern";

/// The user id that stands for everybody whom a user namespace does not map (`/proc/sys/kernel/overflowuid`).
const OVERFLOW_UID: u32 = 65534;

/// The catalog of this executable: beside it, or where it was installed.
///
/// # Errors
/// A text for people if there is none, naming where it was looked for.
pub fn catalog() -> Result<PathBuf, String> {
    let exe =
        std::fs::read_link("/proc/self/exe").map_err(|e| format!("cannot find out where postern itself is: {e}"))?;
    let beside = exe.parent().unwrap_or(Path::new("/")).join(CATALOG);
    let candidates = std::iter::once(beside).chain(INSTALLED.into_iter().map(PathBuf::from));
    let mut looked = Vec::new();
    for candidate in candidates {
        if candidate.is_dir() {
            return Ok(candidate);
        }
        looked.push(candidate.display().to_string());
    }
    Err(format!("there is no catalog of plugins at {}; `make install` puts one there", looked.join(" or ")))
}

/// The state directory: [`STATE`], or below `XDG_RUNTIME_DIR` for a user who may not write there (rootless runtimes).
pub fn state() -> PathBuf {
    let state = PathBuf::from(STATE);
    if usable(&state) {
        return state;
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir).join("postern"),
        _ => state,
    }
}

/// Where what survives a reboot is kept: [`LIBRARY`], or the state directory for a user who may not write there.
pub fn library() -> PathBuf {
    let library = PathBuf::from(LIBRARY);
    if usable(&library) { library } else { state() }
}

/// Whether the directory is there, or can be made, and can be written.
fn usable(directory: &Path) -> bool {
    let there = directory.is_dir() || DirBuilder::new().recursive(true).mode(0o700).create(directory).is_ok();
    there && access(directory, AccessFlags::W_OK | AccessFlags::X_OK).is_ok()
}

/// Refuses a path that somebody else than root or the effective user could change.
///
/// # Errors
/// A text for people: what is wrong with which component of the path, and the way out.
pub fn trust(path: &Path) -> Result<(), String> {
    let real = std::fs::canonicalize(path).map_err(|e| format!("{}: {e}", path.display()))?;
    for part in real.ancestors() {
        let stat = lstat(part).map_err(|e| format!("{}: {e}", part.display()))?;
        trust_stat(part, &stat)?;
    }
    Ok(())
}

/// The same for a file that is open already, below a directory that [`trust`] has accepted.
///
/// # Errors
/// As [`trust`].
pub fn trust_file(path: &Path, file: impl AsFd) -> Result<(), String> {
    let stat = fstatat(file.as_fd(), "", nix::fcntl::AtFlags::AT_EMPTY_PATH)
        .map_err(|e| format!("{}: {e}", path.display()))?;
    trust_stat(path, &stat)
}

fn trust_stat(path: &Path, stat: &FileStat) -> Result<(), String> {
    let owner = stat.st_uid;
    if owner != 0 && owner != geteuid().as_raw() && !(owner == OVERFLOW_UID && in_user_namespace()) {
        return Err(format!(
            "{} belongs to user {owner}, who could replace what postern runs with its own privileges; \
             `make install` puts everything into places that root owns",
            path.display()
        ));
    }
    let directory = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits();
    let sticky = directory && stat.st_mode & Mode::S_ISVTX.bits() != 0;
    if stat.st_mode & (Mode::S_IWGRP | Mode::S_IWOTH).bits() != 0 && !sticky {
        return Err(format!(
            "{} can be written by others than its owner (mode {:o}); `chmod go-w {}` mends it",
            path.display(),
            stat.st_mode & 0o7777,
            path.display()
        ));
    }
    Ok(())
}

/// Whether ids are mapped: then files of root outside appear to belong to the overflow user.
fn in_user_namespace() -> bool {
    std::fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn refuses_what_others_can_write() {
        let dir = std::env::temp_dir().join(format!("postern-places-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("inner")).unwrap();
        let file = dir.join("inner/policy.toml");
        std::fs::write(&file, "").unwrap();
        let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(&dir, 0o755);
        mode(&dir.join("inner"), 0o755);
        mode(&file, 0o644);
        trust(&file).unwrap();
        mode(&file, 0o664);
        assert!(trust(&file).unwrap_err().contains("chmod go-w"));
        mode(&file, 0o644);
        mode(&dir.join("inner"), 0o777);
        assert!(trust(&file).unwrap_err().contains("inner can be written by others"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
