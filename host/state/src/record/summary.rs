//! Records as others see them: what there is, and whose owner is alive.

use super::lines::{Fault, parse};
use super::{CORRUPT, Effect, Header, RecordKey, Section, locked_file, open_directory};
use crate::error::{Result, StateError};
use crate::files::{Directory, read_all};
use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, SFlag};
use serde_json::Value;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A record as seen without its lock: it may be changing.
#[derive(Debug)]
pub struct Summary {
    /// Its file.
    pub path: PathBuf,
    /// Its key; `None` for one set aside.
    pub key: Option<RecordKey>,
    /// Whose it is.
    pub header: Option<Header>,
    /// Live effects as they are in the file.
    pub effects: Vec<Effect<Value>>,
    /// Its sections, in the order in which their plugins were called; none in a record of a version that had none.
    pub sections: Vec<Section>,
    /// Why it can't be read, or what is damaged.
    pub problems: Vec<String>,
    /// It is whole, but of a version that this one can't read.
    pub is_of_other_version: bool,
}

/// All records below `root`, also those set aside, in order of file name; none if the directory is absent.
///
/// # Errors
/// [`StateError::Untrusted`], [`StateError::Io`] for the directory; a record's own trouble is in its summary.
pub fn list(root: &Path) -> Result<Vec<Summary>> {
    let Some(directory) = open_directory(root, false)? else { return Ok(Vec::new()) };
    let mut names = directory.names()?;
    names.sort();
    Ok(names.iter().filter_map(|name| look(&directory, name)).collect())
}

/// As [`list`], without the records of `known`, whose files are not even opened: the name of a file tells whose it is. Of the
/// others, empty files are removed as by [`tidy`].
///
/// # Errors
/// As [`list`].
pub fn list_others(root: &Path, known: &HashSet<RecordKey>) -> Result<Vec<Summary>> {
    let Some(directory) = open_directory(root, false)? else { return Ok(Vec::new()) };
    let is_known = |name: &String| RecordKey::parse(name).is_some_and(|key| known.contains(&key));
    let mut names: Vec<String> = directory.names()?.into_iter().filter(|name| !is_known(name)).collect();
    names.sort();
    let mut summaries = Vec::new();
    for name in names {
        if let Some(summary) = look(&directory, &name) {
            summaries.push(summary);
        } else if let Some(key) = RecordKey::parse(&name) {
            remove_empty(&directory, &key)?;
        }
    }
    Ok(summaries)
}

/// What is in a file of the directory; `None` if that is no record, or none yet.
fn look(directory: &Directory, name: &str) -> Option<Summary> {
    let path = directory.path_of(name);
    let key = RecordKey::parse(name);
    let mut summary = Summary {
        path,
        key,
        header: None,
        effects: Vec::new(),
        sections: Vec::new(),
        problems: Vec::new(),
        is_of_other_version: false,
    };
    if summary.key.is_none() {
        if !name.contains(CORRUPT) {
            return None;
        }
        summary.problems.push("corrupt, set aside".to_owned());
    }
    let content = match directory.read(name) {
        Ok(content) => content?,
        Err(error) => {
            summary.problems.push(error.to_string());
            return Some(summary);
        }
    };
    match parse::<Value>(&summary.path, &content) {
        Ok(parsed) => {
            // None: being begun, or killed then.
            let parsed = parsed?;
            summary.header = Some(parsed.header);
            summary.effects = parsed.live;
            summary.sections = parsed.sections;
            summary.problems.extend(parsed.warnings);
        }
        Err(Fault::Corrupt(detail)) => summary.problems.push(detail),
        Err(Fault::Unusable(error)) => {
            summary.problems.push(error.to_string());
            summary.is_of_other_version = true;
        }
    }
    Some(summary)
}

/// Remove the files of runs that were killed as they began their record: they are empty, and nothing was begun. How many.
///
/// # Errors
/// [`StateError::Untrusted`], [`StateError::Io`] for the directory.
pub fn tidy(root: &Path) -> Result<usize> {
    let Some(directory) = open_directory(root, false)? else { return Ok(0) };
    let keys = directory.names()?;
    keys.iter().filter_map(|name| RecordKey::parse(name)).try_fold(0, |removed, key| {
        let empty = remove_empty(&directory, &key)?;
        Ok(removed + usize::from(empty))
    })
}

/// Remove the file of `key` if it is empty and nobody has it open; whether it was removed.
pub(super) fn remove_empty(directory: &Directory, key: &RecordKey) -> Result<bool> {
    let is_empty = |stat: FileStat| stat.st_size == 0 && stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
    if !directory.stat(key.as_str()).ok().flatten().is_some_and(is_empty) {
        return Ok(false);
    }
    // Only with the lock, and if it is empty still: somebody may be about to write.
    match locked_file(directory, key, OFlag::O_RDWR, Instant::now()) {
        Ok(Some(file)) if file.metadata().is_ok_and(|meta| meta.len() == 0) => directory.unlink(key.as_str()),
        _ => Ok(false),
    }
}

/// Whether somebody is at work on the attachment `key` below `root`, or has got further with it since `time`
/// (milliseconds since 1970): who collects garbage knows nothing of it yet. No record: no.
///
/// # Errors
/// [`StateError::Untrusted`], [`StateError::Io`].
pub fn is_busy(root: &Path, key: &RecordKey, time: u64) -> Result<bool> {
    let Some(directory) = open_directory(root, false)? else { return Ok(false) };
    let file = match locked_file(&directory, key, OFlag::O_RDONLY, Instant::now()) {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(false),
        Err(StateError::Locked { .. }) => return Ok(true),
        Err(error) => return Err(error),
    };
    let path = directory.path_of(key.as_str());
    let content = read_all(&file).map_err(|error| StateError::io("read", &path, error))?;
    let Ok(Some(parsed)) = parse::<Value>(&path, &content) else { return Ok(false) };
    Ok(parsed.sections.iter().any(|section| section.since >= time))
}
