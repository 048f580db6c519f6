//! Tests if runs can write their files. The test asks the kernel, and does not write.

use nix::errno::Errno;
use nix::sys::stat::{SFlag, stat};
use nix::unistd::{AccessFlags, access, geteuid};
use postern_gate::LOG;
use postern_gate::places::{self, LIBRARY, LOGS, Places, is_there, trust_file};
use postern_gate::shell::quoted;
use postern_state::{Dir, OpenMode, kind};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The largest number of subdirectories that are looked at in one directory.
const MOST: usize = 256;

/// A path that runs can't write. Runs fail, or use another directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The directory or file.
    pub path: PathBuf,
    /// The obstacle to writing, as a predicate of the path.
    pub what: String,
    /// The consequence.
    pub why: &'static str,
    /// The remedy.
    pub remedy: String,
    /// True if the remedy is a command.
    pub is_command: bool,
    /// True if runs work without this path.
    pub is_survived: bool,
}

/// Returns the obstacles that keep this user's runs from writing records, notes, the index of leases and the log.
pub fn obstacles(places: &Places) -> Vec<Obstacle> {
    let mut found = Vec::new();
    let failing = "runs write records and notes in this directory. ADD fails, and DEL can't update the record";
    for place in [&places.state, &places.library] {
        let mut paths = vec![place.clone()];
        paths.extend(directories_in(place).unwrap_or_default());
        let mut refused: Vec<Obstacle> = paths.iter().filter_map(|path| refused(path, failing)).collect();
        // An obstacle of the directory applies to all files in it.
        if refused.first().is_some_and(|first| first.path == *place) {
            refused.truncate(1);
        }
        found.extend(refused);
    }
    let index = "runs keep the index of leases in the state directory instead, which is lost at a boot";
    if places.library != Path::new(LIBRARY) {
        found.extend(missed(Path::new(LIBRARY), index));
    }
    if places.logs != Path::new(LOGS) {
        found.extend(missed(Path::new(LOGS), "runs write their log into the state directory instead"));
    }
    found.extend(log(&places.logs));
    let mut seen: Vec<PathBuf> = Vec::new();
    found.retain(|obstacle| {
        !seen.contains(&obstacle.path) && {
            seen.push(obstacle.path.clone());
            true
        }
    });
    found
}

/// Returns the directories in a directory, without symbolic links to directories.
fn directories_in(place: &Path) -> io::Result<Vec<PathBuf>> {
    let dir = Dir::open(place)?;
    let mut names = dir.names_that(|_| true)?;
    names.truncate(MOST);
    names.retain(|name| dir.stat(name).is_ok_and(|stat| stat.is_some_and(|stat| kind(&stat) == SFlag::S_IFDIR)));
    Ok(names.iter().map(|name| place.join(name)).collect())
}

/// Returns the obstacle if a directory exists and can't be written.
pub fn refused(path: &Path, why: &'static str) -> Option<Obstacle> {
    let errno = access(path, AccessFlags::W_OK | AccessFlags::X_OK).err().filter(|errno| *errno != Errno::ENOENT)?;
    Some(obstacle(path, errno, why))
}

/// Like `refused`, for a directory that this user's runs would prefer to use. Directories of other users don't count.
fn missed(path: &Path, why: &'static str) -> Option<Obstacle> {
    let there = path.ancestors().find(|part| is_there(part))?;
    if stat(there).ok()?.st_uid != geteuid().as_raw() {
        return None;
    }
    let found = refused(there, why)?;
    Some(Obstacle { path: path.to_owned(), is_survived: true, ..found })
}

fn obstacle(path: &Path, errno: Errno, why: &'static str) -> Obstacle {
    let name = quoted(&path.display().to_string());
    let (what, remedy, is_command) = match errno {
        Errno::EROFS => (
            "is on a file system that is read-only".to_owned(),
            format!("mount -o remount,rw \"$(findmnt -nT {name} -o TARGET)\""),
            true,
        ),
        Errno::EPERM => ("must not be changed (lsattr shows `i`)".to_owned(), format!("chattr -i {name}"), true),
        errno => (format!("can't be written: {}", errno.desc()), "make this path writable for runs".to_owned(), false),
    };
    Obstacle { path: path.to_owned(), what, why, remedy, is_command, is_survived: false }
}

/// Returns the reason why lines of the log are lost.
fn log(logs: &Path) -> Option<Obstacle> {
    let why = "the operations of plugins are not logged: runs go on, and their lines are lost";
    let path = logs.join(LOG);
    let refused = match access(&path, AccessFlags::W_OK) {
        Err(errno) if errno != Errno::ENOENT => Some(obstacle(&path, errno, why)),
        _ => None,
    };
    let refused = refused.or_else(|| {
        let reason = can_be_opened(logs).err()?;
        let name = quoted(&path.display().to_string());
        Some(Obstacle {
            what: format!("can't be written: {reason}"),
            remedy: format!("look at the file, `ls -ld {name}`, and repair or remove it; a run makes a missing log"),
            is_command: false,
            ..obstacle(&path, Errno::EACCES, why)
        })
    });
    refused.map(|found| Obstacle { is_survived: true, ..found })
}

/// Checks that a run could open an existing log for writing. Nothing is written or created.
///
/// # Errors
/// The log is no regular file, or is not trusted, or the kernel refuses to open it.
fn can_be_opened(logs: &Path) -> io::Result<()> {
    let directory = match places::directory(logs) {
        Ok(directory) => directory,
        Err(_) if !is_there(logs) => return Ok(()),
        Err(reason) => return Err(io::Error::other(reason)),
    };
    trust_file(logs, &directory).map_err(io::Error::other)?;
    match directory.file(LOG, OpenMode::Append) {
        Ok(file) => {
            if !file.metadata()?.is_file() {
                return Err(io::Error::other("it is no regular file"));
            }
            trust_file(&logs.join(LOG), &file).map_err(io::Error::other)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
