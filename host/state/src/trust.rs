//! Whom a path must belong to before what is there is run or believed.
//!
//! It must belong to root or to the effective user, and so must every directory on the way, which nobody else may write:
//! whoever can put a file there has the host's privileges. Of the directories that others can write, a sticky one (`/tmp`)
//! will do on the way, and never as the end of it.
//!
//! In a user namespace (rootless runtimes) root of the node is one of those whom the namespace does not map, and the
//! kernel shows all of them as the same user. What only root of the node can have made is told by its place: the
//! directories of [`SYSTEM`], and files in them. Whatever else belongs to an unmapped user may be anybody's.
#![expect(clippy::disallowed_methods, reason = "whole paths are what is judged here, and nothing is opened")]

use nix::sys::stat::{FileStat, Mode, SFlag, fstat, lstat};
use nix::unistd::geteuid;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Why a path is not to be trusted, with the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// It can't be looked at.
    #[error("{}: {reason}", .path.display())]
    Unknown {
        /// The component of the path.
        path: PathBuf,
        /// What the kernel said.
        reason: String,
    },
    /// Others than its owner can write it.
    #[error("{} can be written by others than its owner (mode {mode:o}); {way_out}", .path.display())]
    Writable {
        /// The component of the path.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// What mends it.
        way_out: String,
    },
    /// It belongs to one of the users that all look the same in this user namespace.
    #[error(
        "{} belongs to a user that this user namespace does not map, who may be anybody and could replace what postern \
         runs and believes; of those users' files only what lies in the system's own directories, such as \
         /usr/local/lib/postern and /usr/lib/cni, counts as root's: use that, or a directory of your own",
        .path.display()
    )]
    Unmapped {
        /// The component of the path.
        path: PathBuf,
    },
    /// It belongs to somebody else.
    #[error("{} belongs to user {owner}, who could replace what postern runs and believes{way_out}", .path.display())]
    Stranger {
        /// The component of the path.
        path: PathBuf,
        /// Whom.
        owner: u32,
        /// What that would allow, and what mends it.
        way_out: String,
    },
}

impl TrustError {
    fn unknown(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::Unknown { path: path.to_owned(), reason: reason.to_string() }
    }
}

/// Directories (and links to them) that belong to root on every node: each has its parent on this list, so that nobody
/// but root can have put it there. `/opt`, `/srv`, `/mnt` and what lies in `/home` are given away on many nodes.
const SYSTEM: [&str; 41] = [
    "/",
    "/bin",
    "/etc",
    "/etc/cni",
    "/etc/cni/net.d",
    "/etc/postern",
    "/etc/postern/policy",
    "/home",
    "/lib",
    "/lib64",
    "/run",
    "/run/user",
    "/sbin",
    "/tmp",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib/cni",
    "/usr/lib/postern",
    "/usr/lib/postern/postern.d",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/libexec/cni",
    "/usr/local",
    "/usr/local/bin",
    "/usr/local/lib",
    "/usr/local/lib/cni",
    "/usr/local/lib/postern",
    "/usr/local/lib/postern/bin",
    "/usr/local/lib/postern/postern.d",
    "/usr/local/libexec",
    "/usr/local/libexec/cni",
    "/usr/local/sbin",
    "/usr/sbin",
    "/var",
    "/var/cache",
    "/var/lib",
    "/var/log",
    "/var/run",
    "/var/spool",
    "/var/tmp",
];

/// Those of them in which everybody makes files: a file there is not root's for being there.
const SHARED: [&str; 2] = ["/tmp", "/var/tmp"];

/// Whether a path is one of the system's own directories.
pub(crate) fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path == Path::new(system))
}

fn is_shared(path: &Path) -> bool {
    SHARED.iter().any(|shared| path == Path::new(shared))
}

/// Refuses a path that somebody else than root or the effective user could change, or lead elsewhere.
///
/// # Errors
/// What is wrong with which component of the path, and the way out.
pub fn trust(path: &Path) -> Result<(), TrustError> {
    ways(path, false).map(drop)
}

/// The same for a directory that need not be there yet: where it is missing, the nearest directory that is there is looked
/// at as one on the way. Returns where the path really leads, as far as it is there.
///
/// # Errors
/// As [`trust`].
pub(crate) fn trust_way(path: &Path) -> Result<PathBuf, TrustError> {
    let there = path.ancestors().find(|part| lstat(*part).is_ok()).unwrap_or(path);
    let real = ways(there, there != path)?;
    let missing = path.strip_prefix(there).unwrap_or(Path::new(""));
    Ok(if missing.as_os_str().is_empty() { real } else { real.join(missing) })
}

/// `on_the_way`: the path itself is on the way to what will be made below it.
fn ways(path: &Path, on_the_way: bool) -> Result<PathBuf, TrustError> {
    let real = std::fs::canonicalize(path).map_err(|e| TrustError::unknown(path, e))?;
    let given: PathBuf = std::path::absolute(path).map_err(|e| TrustError::unknown(path, e))?;
    // Links on the way count too: whoever owns one says where it leads.
    let links = (given != real).then_some(&given);
    for way in std::iter::once(&real).chain(links) {
        for (at, part) in way.ancestors().enumerate() {
            let stat = lstat(part).map_err(|e| TrustError::unknown(part, e))?;
            trust_stat(part, &stat, on_the_way || at > 0)?;
        }
    }
    Ok(real)
}

/// The same for a file or directory that is open already, below a directory that [`trust`] has accepted.
///
/// # Errors
/// As [`trust`].
pub fn trust_file(path: &Path, file: impl AsFd) -> Result<(), TrustError> {
    let stat = fstat(file.as_fd()).map_err(|e| TrustError::unknown(path, e))?;
    trust_stat(path, &stat, false)
}

/// The same for what is known of a path. `on_the_way`: in a sticky directory nobody can replace what belongs to another,
/// but anybody can add.
///
/// # Errors
/// As [`trust`].
pub fn trust_stat(path: &Path, stat: &FileStat, on_the_way: bool) -> Result<(), TrustError> {
    trust_owner(path, stat, on_the_way)?;
    let sticky = kind(stat) == SFlag::S_IFDIR && stat.st_mode & Mode::S_ISVTX.bits() != 0;
    let link = kind(stat) == SFlag::S_IFLNK;
    if stat.st_mode & (Mode::S_IWGRP | Mode::S_IWOTH).bits() == 0 || link || sticky && on_the_way {
        return Ok(());
    }
    let way_out = match (is_shared(path), on_the_way) {
        (false, _) => format!("`chmod go-w {}` mends it, once you have looked at what is there", path.display()),
        (true, true) => format!("`chmod +t {}` mends it, once you have looked at what is there", path.display()),
        (true, false) => "it is everybody's: name a directory that belongs to root alone".to_owned(),
    };
    Err(TrustError::Writable { path: path.to_owned(), mode: stat.st_mode & 0o7777, way_out })
}

/// Of what [`trust_stat`] looks at, the owner alone.
pub(crate) fn trust_owner(path: &Path, stat: &FileStat, on_the_way: bool) -> Result<(), TrustError> {
    let unmapped = if stat.st_uid == 0 { None } else { unmapped() };
    trust_owner_where(path, stat, on_the_way, unmapped)
}

/// `unmapped`: the number that stands for all whom this user namespace does not map.
fn trust_owner_where(path: &Path, stat: &FileStat, on_the_way: bool, unmapped: Option<u32>) -> Result<(), TrustError> {
    let owner = stat.st_uid;
    // Nearly everything is root's: nothing else is asked then.
    if owner == 0 {
        return Ok(());
    }
    let user = geteuid().as_raw();
    if owner == user || Some(owner) == unmapped && is_roots(path, stat) {
        return Ok(());
    }
    if Some(owner) == unmapped {
        return Err(TrustError::Unmapped { path: path.to_owned() });
    }
    let way_out = match (on_the_way, user) {
        // Somebody's home, perhaps: taking it away from them would be worse.
        (true, _) => format!(
            " below it with its own privileges; use a directory on the way to which all belongs to root{}",
            if user == 0 { String::new() } else { format!(" or to user {user}") }
        ),
        (false, 0) => {
            let path = path.display();
            format!(" with its own privileges; `chown root {path}` mends it, once you have looked at what is there")
        }
        (false, _) => format!(" with its own privileges; use one that belongs to root or to user {user}"),
    };
    Err(TrustError::Stranger { path: path.to_owned(), owner, way_out })
}

/// Whether something that belongs to an unmapped user can only be root's of the node.
fn is_roots(path: &Path, stat: &FileStat) -> bool {
    let in_its_place = |path: &Path| {
        let in_system = || path.parent().is_some_and(|parent| is_system(parent) && !is_shared(parent));
        is_system(path) || kind(stat) != SFlag::S_IFDIR && in_system()
    };
    // By way of a link, or of `..`, it lies elsewhere than its name says.
    let resolved = || match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => std::fs::canonicalize(parent).map(|parent| parent.join(name)),
        _ => std::fs::canonicalize(path),
    };
    in_its_place(path) || resolved().is_ok_and(|real| in_its_place(&real))
}

/// The number that the kernel shows for every user whom this user namespace does not map; `None` where all are mapped.
/// Found out once, at the first question: a process that has confined itself can't read it any more.
fn unmapped() -> Option<u32> {
    static KNOWN: OnceLock<Option<u32>> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
        if map.split_whitespace().eq(["0", "0", "4294967295"]) {
            return None;
        }
        let number = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
        Some(number.and_then(|text| text.trim().parse().ok()).unwrap_or(65534))
    })
}

/// What kind of file it is.
pub fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A fresh directory for one test, with an inner one that has a file.
    fn place(name: &str) -> (PathBuf, PathBuf) {
        let dir = std::env::temp_dir().join(format!("postern-trust-{name}-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("inner")).unwrap();
        let file = dir.join("inner/policy.toml");
        std::fs::write(&file, "").unwrap();
        mode(&dir, 0o755);
        mode(&dir.join("inner"), 0o755);
        mode(&file, 0o644);
        (dir, file)
    }

    #[test]
    fn refuses_what_others_can_write() {
        let (dir, file) = place("modes");
        trust(&file).unwrap();
        mode(&file, 0o664);
        assert!(trust(&file).unwrap_err().to_string().contains("chmod go-w"));
        mode(&file, 0o644);
        mode(&dir.join("inner"), 0o777);
        assert!(trust(&file).unwrap_err().to_string().contains("inner can be written by others"));
        // Sticky: nobody can replace the file, but anybody can add one.
        mode(&dir.join("inner"), 0o1777);
        trust(&file).unwrap();
        assert!(trust(&dir.join("inner")).unwrap_err().to_string().contains("(mode 1777)"));
        // What is made in it is its maker's.
        assert_eq!(trust_way(&dir.join("inner/new/net")).unwrap(), dir.join("inner/new/net"));
        mode(&dir.join("inner"), 0o777);
        assert!(
            trust_way(&dir.join("inner/new/net")).unwrap_err().to_string().contains("inner can be written by others")
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn refuses_a_way_through_a_directory_that_others_can_write() {
        let (dir, _) = place("links");
        std::fs::create_dir(dir.join("open")).unwrap();
        symlink(dir.join("inner"), dir.join("open/way")).unwrap();
        trust(&dir.join("open/way/policy.toml")).unwrap();
        assert_eq!(trust_way(&dir.join("open/way/new")).unwrap(), dir.join("inner/new"));
        mode(&dir.join("open"), 0o777);
        assert!(
            trust(&dir.join("open/way/policy.toml")).unwrap_err().to_string().contains("open can be written by others")
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// The file's attributes, as if they were those of another path, owner and mode.
    fn seen(is_directory: bool, owner: u32) -> FileStat {
        let mut stat = lstat("/").unwrap();
        stat.st_mode = if is_directory { SFlag::S_IFDIR } else { SFlag::S_IFREG }.bits() | 0o755;
        stat.st_uid = owner;
        stat
    }

    #[test]
    fn refuses_another_owner_and_names_a_way_out_that_does_no_harm() {
        let said = |path: &str, on_the_way| {
            let stat = seen(true, 4242);
            trust_owner_where(Path::new(path), &stat, on_the_way, None).unwrap_err().to_string()
        };
        let file = said("/usr/local/lib/postern/postern.d", false);
        assert!(file.contains("belongs to user 4242"), "{file}");
        assert_eq!(file.contains("chown root"), geteuid().is_root(), "{file}");
        // Somebody's home.
        let home = said("/home/somebody", true);
        assert!(home.contains("belongs to user 4242") && !home.contains("chown"), "{home}");
        trust_owner_where(Path::new("/usr"), &seen(true, 0), true, None).unwrap();
        trust_owner_where(Path::new("/usr"), &seen(true, geteuid().as_raw()), true, None).unwrap();
    }

    #[test]
    fn of_the_unmapped_only_root_is_trusted_and_by_its_places_alone() {
        let check = |path: &str, is_directory, unmapped| {
            trust_owner_where(Path::new(path), &seen(is_directory, 65534), true, unmapped)
        };
        for (path, is_directory) in [
            ("/", true),
            ("/tmp", true),
            ("/home", true),
            ("/usr/lib/cni", true),
            ("/usr/lib/../lib", true),
            ("/usr/lib/../bin/sh", false),
            ("/usr/lib/cni/dhcp", false),
            ("/usr/local/lib/postern/postern.d/bridge.cwasm", false),
            ("/etc/postern/policy/bridge.toml", false),
        ] {
            check(path, is_directory, Some(65534)).unwrap();
            // Where all are mapped, this number is somebody: `nobody`, or who was given it.
            let said = check(path, is_directory, None).unwrap_err().to_string();
            assert!(said.contains("belongs to user 65534"), "{said}");
        }
        for (path, is_directory) in [
            ("/home/somebody", true),
            ("/usr/../home/somebody", true),
            ("/opt/cni/bin", true),
            ("/opt/cni/bin/dhcp", false),
            ("/srv", true),
            ("/tmp/dhcp", false),
            ("/var/tmp/dhcp", false),
            ("/tmp/bin", true),
            ("/home/somebody/usr", true),
            ("/var/lib/cni", true),
            ("/usr/lib/cni/more", true),
            ("/usr/lib/cni/more/dhcp", false),
        ] {
            let said = check(path, is_directory, Some(65534)).unwrap_err().to_string();
            assert!(said.contains("does not map") && !said.contains('`'), "{said}");
        }
    }

    #[test]
    fn what_is_on_the_list_has_its_parent_there() {
        for path in SYSTEM {
            assert!(Path::new(path).parent().is_none_or(is_system), "{path}");
        }
        assert!(SHARED.iter().all(|path| is_system(Path::new(path))));
    }
}
