//! The conditions on the owner and the mode of a path before Postern runs or reads the file.
//!
//! The path must belong to root or to the effective user, and no other user may write it. Every directory above the
//! path must satisfy this too, because a user who can put a file there gets the host's privileges. A directory with the
//! sticky bit (`/tmp`) is accepted above the path even if others can write it, but never as the path itself.
//!
//! In a user namespace (rootless runtimes) root of the node is one of the users that the namespace does not map. The
//! kernel shows all unmapped users as one user. Then only the place of a file proves that root of the node made it: the
//! directories of [`SYSTEM`], and files in them. Any other file of an unmapped user may belong to any user.
#![expect(clippy::disallowed_methods, reason = "this module judges whole paths, and opens nothing")]

use nix::sys::stat::{FileStat, Mode, SFlag, fstat, lstat};
use nix::unistd::geteuid;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// The reasons why a path is not trusted, each with a hint how to correct it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// The attributes of a path component can't be read.
    #[error("{}: {reason}", .path.display())]
    Unknown {
        /// The component of the path.
        path: PathBuf,
        /// The kernel's error.
        reason: String,
    },
    /// Another user could change or replace the component.
    #[error("{} {defect}", .path.display())]
    Defect {
        /// The component of the path.
        path: PathBuf,
        /// The defect and how to correct it: the rest of a sentence that begins with the path.
        defect: String,
    },
}

impl TrustError {
    fn unknown(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::Unknown { path: path.to_owned(), reason: reason.to_string() }
    }

    fn defect(path: &Path, defect: String) -> Self {
        Self::Defect { path: path.to_owned(), defect }
    }
}

/// Directories (and links to them) that belong to root on every node. The parent of each directory is on this list too,
/// so only root can have made the directory. `/opt`, `/srv`, `/mnt` and the directories in `/home` belong to other
/// users on many nodes.
const SYSTEM: [&str; 37] = [
    "/",
    "/bin",
    "/etc",
    "/etc/cni",
    "/etc/cni/net.d",
    "/etc/cni/tuning",
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
    "/usr/lib64",
    "/usr/libexec",
    "/usr/libexec/cni",
    "/usr/local",
    "/usr/local/bin",
    "/usr/local/lib",
    "/usr/local/lib/cni",
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

/// System directories in which all users make files. In them, the place of a file doesn't prove that root made the
/// file.
const SHARED: [&str; 2] = ["/tmp", "/var/tmp"];

/// The directories of an installation (`make install`). Only root makes files in them.
const INSTALLATIONS: [&str; 2] = ["/usr/lib/postern", "/usr/local/lib/postern"];

/// The directory with the operator's catalog: plugins that were added beside a read-only installation.
const ADDED: &str = "/var/lib/postern";

/// Directories of plugins that can have a copy of the host executable with its catalog.
const PLUGINS: [&str; 4] = ["/usr/lib/cni", "/usr/libexec/cni", "/usr/local/lib/cni", "/usr/local/libexec/cni"];

/// True if a path is one of the system's own directories.
pub(crate) fn is_system(path: &Path) -> bool {
    is_one_of(path, &SYSTEM) || is_installed(path)
}

/// True if a path is a directory of an installation, or a catalog beside a copy of the host executable.
///
/// An installation has each version in a directory that is named after its content:
/// `versions/0.1.0-10bcee53b749/postern.d`. All other names are fixed.
fn is_installed(path: &Path) -> bool {
    let below = |top: &str| Some(path.strip_prefix(top).ok()?.iter().map(OsStr::as_bytes).collect::<Vec<_>>());
    INSTALLATIONS.into_iter().filter_map(below).any(|rest| {
        let rest = match rest.as_slice() {
            [b"versions", version, rest @ ..] if *version != b".." => rest,
            [b"versions"] => &[],
            rest => rest,
        };
        matches!(rest, [] | [b"postern.d" | b"schemas" | b"bin"])
    }) || PLUGINS.into_iter().filter_map(below).any(|rest| rest == [b"postern.d"])
}

/// True if `path` is one of `names`, which are in their shortest form. A comparison of two paths would parse both paths
/// each time. This function parses `path` once.
fn is_one_of(path: &Path, names: &[&str]) -> bool {
    let shortest: PathBuf = path.components().collect();
    names.iter().any(|name| shortest.as_os_str() == *name)
}

/// Refuses a path that a user other than root or the effective user could change or redirect.
///
/// # Errors
/// The defect, the component that has the defect, and how to correct it.
pub fn trust(path: &Path) -> Result<(), TrustError> {
    ways(path, false).map(drop)
}

/// As [`trust`], for a directory that need not exist yet. If the directory is missing, the nearest existing parent is
/// tested. Returns the real path, as far as it exists. With `is_above` only a directory below the path is used, so the
/// path may be sticky.
///
/// # Errors
/// As [`trust`].
pub fn trust_way(path: &Path, is_above: bool) -> Result<PathBuf, TrustError> {
    let there = path.ancestors().find(|part| lstat(*part).is_ok()).unwrap_or(path);
    let real = ways(there, is_above || there != path)?;
    let missing = path.strip_prefix(there).unwrap_or(Path::new(""));
    Ok(if missing.as_os_str().is_empty() { real } else { real.join(missing) })
}

/// True if no other user could change or redirect the directory, and it is no directory of the system. The directory
/// need not exist yet.
pub fn is_trusted_way(path: &Path) -> bool {
    trust_way(path, false).is_ok_and(|real| !is_system(&real))
}

/// Tests a path and all directories above the path, and returns the real path. `on_the_way` is true if only an object
/// below the path is used.
fn ways(path: &Path, on_the_way: bool) -> Result<PathBuf, TrustError> {
    let given: PathBuf = std::path::absolute(path).map_err(|e| TrustError::unknown(path, e))?;
    if let Some(stats) = straight(&given) {
        for (at, (part, stat)) in stats.iter().enumerate() {
            trust_stat(part, stat, on_the_way || at > 0)?;
        }
        return Ok(given);
    }
    let real = match std::fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) => {
            trust_to_nowhere(given)?;
            return Err(TrustError::unknown(path, error));
        }
    };
    // Links in the path count too: the owner of a link decides where it leads.
    let links = (given != real).then_some(&given);
    for way in std::iter::once(&real).chain(links) {
        for (at, part) in way.ancestors().enumerate() {
            let stat = lstat(part).map_err(|e| TrustError::unknown(part, e))?;
            trust_stat(part, &stat, on_the_way || at > 0)?;
        }
    }
    Ok(real)
}

/// As [`trust`], for a path that can't be followed to its end. Another user's link is a defect even if it leads
/// nowhere, or to itself.
fn trust_to_nowhere(mut way: PathBuf) -> Result<(), TrustError> {
    for _ in 0..MOST_LINKS {
        for part in way.ancestors() {
            if let Ok(stat) = lstat(part) {
                trust_stat(part, &stat, true)?;
            }
        }
        // If the path has several links, the kernel follows the first link first.
        let link = way.ancestors().filter_map(|part| Some((part, std::fs::read_link(part).ok()?))).last();
        let Some((link, target)) = link else { return Ok(()) };
        let target = link.parent().unwrap_or(link).join(target);
        way = match way.strip_prefix(link) {
            Ok(below) if below.as_os_str().is_empty() => target,
            below => target.join(below.unwrap_or(Path::new(""))),
        };
    }
    Ok(())
}

/// The largest number of links that the kernel follows in a path.
const MOST_LINKS: usize = 40;

/// Returns an absolute path and all its parents, each with its attributes. `None` if a part is a link or `..`, or can't
/// be read. Nearly every path has no links and no `..`. Such a path is the real path, and no part is read twice.
fn straight(path: &Path) -> Option<Vec<(&Path, FileStat)>> {
    if path.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let stats = path.ancestors().map(|part| Some((part, lstat(part).ok()?)));
    stats.map(|stat| stat.filter(|(_, stat)| kind(stat) != SFlag::S_IFLNK)).collect()
}

/// As [`trust`], for an open file or directory below a directory that [`trust`] has accepted.
pub fn trust_file(path: &Path, file: impl AsFd) -> Result<(), TrustError> {
    let stat = fstat(file.as_fd()).map_err(|e| TrustError::unknown(path, e))?;
    trust_stat(path, &stat, false)
}

/// As [`trust`], for given attributes of a path. With `on_the_way` a sticky directory is accepted: no user can replace
/// another user's file in it, but every user can add a file.
pub fn trust_stat(path: &Path, stat: &FileStat, on_the_way: bool) -> Result<(), TrustError> {
    trust_owner(path, stat, on_the_way)?;
    let sticky = kind(stat) == SFlag::S_IFDIR && stat.st_mode & Mode::S_ISVTX.bits() != 0;
    let link = kind(stat) == SFlag::S_IFLNK;
    if stat.st_mode & (Mode::S_IWGRP | Mode::S_IWOTH).bits() == 0 || link || sticky && on_the_way {
        return Ok(());
    }
    let way_out = match (is_one_of(path, &SHARED), on_the_way) {
        (false, _) => format!("check the content first, then repair the mode by `chmod go-w {}`", path.display()),
        (true, true) => format!("check the content first, then repair the mode by `chmod +t {}`", path.display()),
        (true, false) => "name a directory that belongs to root alone, not a directory of all users".to_owned(),
    };
    let mode = stat.st_mode & 0o7777;
    Err(TrustError::defect(path, format!("can be written by others than its owner (mode {mode:o}); {way_out}")))
}

/// Tests only the owner, as [`trust_stat`] does.
pub(crate) fn trust_owner(path: &Path, stat: &FileStat, on_the_way: bool) -> Result<(), TrustError> {
    // Nearly all files belong to root: no further test is needed for them.
    if stat.st_uid == 0 { Ok(()) } else { trust_owner_where(path, stat, on_the_way, unmapped()) }
}

/// `unmapped` is the number that stands for all users that this user namespace does not map.
fn trust_owner_where(path: &Path, stat: &FileStat, on_the_way: bool, unmapped: Option<u32>) -> Result<(), TrustError> {
    let (owner, user) = (stat.st_uid, geteuid().as_raw());
    if owner == user || Some(owner) == unmapped && belongs_to_root(path, stat) {
        return Ok(());
    }
    // All unmapped users look the same, so the owner may be any of them.
    if Some(owner) == unmapped {
        let defect =
            "belongs to a user that this user namespace does not map, and anybody could replace Postern's files";
        let way_out = match path.starts_with(ADDED) {
            true => "plugins that were added beside a read-only installation run under root's runtimes only",
            false => {
                "install Postern below /usr/local or /usr (`postern install --prefix /usr`), or use a directory of your own"
            }
        };
        return Err(TrustError::defect(path, format!("{defect}; {way_out}")));
    }
    let way_out = match (on_the_way, user) {
        // The directory may be a user's home: a change of its owner would do more harm.
        (true, _) => format!(
            " below this directory with postern's privileges; use a directory whose parents all belong to root{}",
            if user == 0 { String::new() } else { format!(" or to user {user}") }
        ),
        (false, 0) => {
            let path = path.display();
            format!(" with postern's privileges; check the content first, then repair the owner by `chown root {path}`")
        }
        (false, _) => format!(" with postern's privileges; use a path that belongs to root or to user {user}"),
    };
    let could = "who could replace files that postern runs or trusts";
    Err(TrustError::defect(path, format!("belongs to user {owner}, {could}{way_out}")))
}

/// True if an object of an unmapped user can only belong to root of the node.
fn belongs_to_root(path: &Path, stat: &FileStat) -> bool {
    let in_its_place = |path: &Path| {
        let in_system = || path.parent().is_some_and(|parent| is_system(parent) && !is_one_of(parent, &SHARED));
        is_system(path) || kind(stat) != SFlag::S_IFDIR && in_system()
    };
    // If the path has a link or `..`, the object lies elsewhere than the path shows.
    let resolved = || match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => std::fs::canonicalize(parent).map(|parent| parent.join(name)),
        _ => std::fs::canonicalize(path),
    };
    in_its_place(path) || resolved().is_ok_and(|real| in_its_place(&real))
}

/// Returns the number that the kernel shows for every user that this user namespace does not map; `None` if all users
/// are mapped. The number is read once, at the first call: a confined process can't read it.
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

/// Returns the kind of the file.
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

    /// Makes a fresh directory for one test, with a file in an inner directory.
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
        // The directory is sticky: no user can replace the file, but every user can add a file.
        mode(&dir.join("inner"), 0o1777);
        trust(&file).unwrap();
        assert!(trust(&dir.join("inner")).unwrap_err().to_string().contains("(mode 1777)"));
        // A new directory in the sticky directory belongs to its maker.
        assert_eq!(trust_way(&dir.join("inner/new/net"), false).unwrap(), dir.join("inner/new/net"));
        mode(&dir.join("inner"), 0o777);
        assert!(
            trust_way(&dir.join("inner/new/net"), false)
                .unwrap_err()
                .to_string()
                .contains("inner can be written by others")
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn refuses_a_way_through_a_directory_that_others_can_write() {
        let (dir, _) = place("links");
        std::fs::create_dir(dir.join("open")).unwrap();
        symlink(dir.join("inner"), dir.join("open/way")).unwrap();
        trust(&dir.join("open/way/policy.toml")).unwrap();
        assert_eq!(trust_way(&dir.join("open/way/new"), false).unwrap(), dir.join("inner/new"));
        mode(&dir.join("open"), 0o777);
        assert!(
            trust(&dir.join("open/way/policy.toml")).unwrap_err().to_string().contains("open can be written by others")
        );
        // A link that leads nowhere is tested too.
        symlink("nowhere", dir.join("open/lost")).unwrap();
        symlink("loop", dir.join("open/loop")).unwrap();
        for (name, end) in [("to-lost", "../open/lost"), ("to-loop", "../open/loop/below")] {
            symlink(end, dir.join("inner").join(name)).unwrap();
            let error = trust_way(&dir.join("inner").join(name), false).unwrap_err().to_string();
            assert!(error.contains("open can be written by others"), "{name}: {error}");
        }
        symlink("nowhere", dir.join("inner/lost")).unwrap();
        assert!(matches!(trust_way(&dir.join("inner/lost"), false), Err(TrustError::Unknown { .. })));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// Returns the attributes of a directory or file with this owner.
    fn seen(is_directory: bool, owner: u32) -> FileStat {
        let mut stat = lstat("/").unwrap();
        stat.st_mode = if is_directory { SFlag::S_IFDIR } else { SFlag::S_IFREG }.bits() | 0o755;
        stat.st_uid = owner;
        stat
    }

    #[test]
    fn refuses_another_owner_and_names_a_way_out_that_does_no_harm() {
        let message = |path: &str, on_the_way| {
            let stat = seen(true, 4242);
            trust_owner_where(Path::new(path), &stat, on_the_way, None).unwrap_err().to_string()
        };
        let file = message("/usr/local/lib/postern/postern.d", false);
        assert!(file.contains("belongs to user 4242"), "{file}");
        assert_eq!(file.contains("chown root"), geteuid().is_root(), "{file}");
        // The home of a user.
        let home = message("/home/somebody", true);
        assert!(home.contains("belongs to user 4242") && !home.contains("chown"), "{home}");
        trust_owner(Path::new("/usr"), &seen(true, 0), true).unwrap();
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
            ("/usr/local/lib/postern/current", false),
            ("/usr/local/lib/postern/versions", true),
            ("/usr/local/lib/postern/versions/0.1.0-10bcee53b749", true),
            ("/usr/local/lib/postern/versions/0.1.0-10bcee53b749/postern", false),
            ("/usr/lib/postern/versions/0.1.0-10bcee53b749-1/postern.d", true),
            ("/usr/lib/postern/versions/0.1.0-10bcee53b749/postern.d/bridge.json", false),
            ("/usr/local/lib/postern/bin", true),
            ("/usr/lib/cni/postern.d", true),
            ("/usr/libexec/cni/postern.d/bridge.toml", false),
            ("/etc/postern/policy/bridge.toml", false),
        ] {
            check(path, is_directory, Some(65534)).unwrap();
            // If all users are mapped, this number is a real user: `nobody`, or another user with this number.
            let message = check(path, is_directory, None).unwrap_err().to_string();
            assert!(message.contains("belongs to user 65534"), "{message}");
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
            ("/usr/lib/cni/postern.d/more", true),
            ("/usr/lib/postern.d", true),
            ("/usr/local/lib/postern/more", true),
            ("/usr/local/lib/postern/postern.d/more", true),
            ("/usr/local/lib/postern/versions/1/more", true),
            ("/usr/local/lib/postern/versions/1/postern.d/more", true),
            ("/usr/local/lib/postern/versions/../../x", true),
            ("/opt/postern/versions/1/postern.d", true),
        ] {
            let message = check(path, is_directory, Some(65534)).unwrap_err().to_string();
            // The advice in the message works, and changes no owner.
            assert!(message.contains("does not map") && message.contains("install --prefix /usr"), "{message}");
            assert!(!message.contains("chown") && !message.contains("chmod"), "{message}");
        }
        let message = check("/var/lib/postern", true, Some(65534)).unwrap_err().to_string();
        assert!(message.contains("under root's runtimes only") && !message.contains("--prefix"), "{message}");
    }

    #[test]
    fn a_path_is_on_the_list_in_any_form() {
        for path in ["/", "//", "/usr", "/usr/", "//usr", "/usr/./bin", "/var/tmp/."] {
            assert!(is_system(Path::new(path)), "{path}");
        }
        for path in ["", "usr", "./usr", "/usr/..", "/usr/../usr", "/USR", "/usr/bin/x"] {
            assert!(!is_system(Path::new(path)), "{path}");
        }
        assert!(is_one_of(Path::new("/tmp/"), &SHARED) && !is_one_of(Path::new("/usr"), &SHARED));
    }

    #[test]
    fn what_is_on_the_list_has_its_parent_there() {
        for path in SYSTEM.into_iter().chain(INSTALLATIONS).chain(PLUGINS) {
            assert!(Path::new(path).parent().is_none_or(is_system), "{path}");
        }
        assert!(SHARED.iter().all(|path| is_system(Path::new(path))));
    }
}
