//! Read-only views of records: a list, and a test whether a process works on a record. All errors are
//! [`StateError::Untrusted`] and [`StateError::Io`] for the directory of records. An error of a single record is in its
//! summary. [`list_known`], [`list_with`], [`find`] and [`list_of`] return the error of a single record, because their
//! callers rely on the absence of an effect in all records.

use super::lines::{Fault, parse};
use super::{CORRUPT, Header, NetworkKey, NotedEffect, RecordKey, Section, locked_file, name_in, open_directory};
use crate::dir::OpenMode;
use crate::error::{Result, StateError};
use crate::files::{Directory, read_all};
use nix::sys::stat::{FileStat, SFlag};
use serde_json::Value;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A record that was read without its lock: it may be changing.
#[derive(Debug)]
pub struct Summary {
    /// The record's file.
    pub path: PathBuf,
    /// The record's key; `None` if the record was set aside.
    pub key: Option<RecordKey>,
    /// The record's attachment.
    pub header: Option<Header>,
    /// Live effects, as JSON.
    pub effects: Vec<NotedEffect<Value>>,
    /// The sections, in the order in which their plugins were called; empty in a record of a version without sections.
    pub sections: Vec<Section>,
    /// The reasons why the record can't be read, or its damage.
    pub problems: Vec<String>,
    /// True if the record is whole, but this Postern can't read the record's format version.
    pub is_of_other_version: bool,
    /// The error if the file could not be read now. Then the record's effects are unknown.
    pub unread: Option<StateError>,
}

impl Summary {
    /// Returns the summary, or the error if the file could not be read now.
    fn known(self) -> Result<Self> {
        self.unread.map_or(Ok(()), Err)?;
        Ok(Self { unread: None, ..self })
    }
}

/// Returns all records below `root`, also records that were set aside, in the order of file names. The list is empty if
/// the directory is absent.
pub fn list(root: &Path) -> Result<Vec<Summary>> {
    list_where(root, |_| true)
}

/// Returns the records whose content satisfies `is_wanted`.
fn list_where(root: &Path, is_wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<Summary>> {
    let Some(directory) = open_directory(root)? else { return Ok(Vec::new()) };
    let mut names = directory.names()?;
    names.sort();
    Ok(names.iter().filter_map(|name| look(&directory, name, &is_wanted)).collect())
}

/// Returns all records as [`list`] does, for callers that rely on the absence of an effect in all records. So a record
/// that could not be read now is an error: [`StateError::Io`].
pub fn list_known(root: &Path) -> Result<Vec<Summary>> {
    list(root)?.into_iter().map(Summary::known).collect()
}

/// Returns the records whose file has this text, otherwise as [`list_known`] does. Other records are not parsed,
/// because parsing takes most of the time.
pub fn list_with(root: &Path, text: &str) -> Result<Vec<Summary>> {
    let has_text = |content: &[u8]| content.windows(text.len().max(1)).any(|part| part == text.as_bytes());
    list_where(root, has_text)?.into_iter().map(Summary::known).collect()
}

/// Returns one record below `root` as [`list_known`] does; `None` if there is no such record.
pub fn find(root: &Path, key: &RecordKey) -> Result<Option<Summary>> {
    let Some(directory) = open_directory(root)? else { return Ok(None) };
    look(&directory, &name_in(&directory, key)?, |_| true).map(Summary::known).transpose()
}

/// True if there is a file of this record below `root`.
pub(crate) fn exists(root: &Path, key: &RecordKey) -> Result<bool> {
    let Some(directory) = open_directory(root)? else { return Ok(false) };
    Ok(directory.stat(&name_in(&directory, key)?)?.is_some())
}

/// True if there is a file of this record below `root`. The directory's owner is not checked, so no decision may depend
/// on the answer. The call takes one or two system calls.
#[must_use]
pub fn is_there(root: &Path, key: &RecordKey) -> bool {
    let directory = root.join(super::SUBDIRECTORY);
    let mut names = [Some(*key), key.earlier()].into_iter().flatten();
    names.any(|key| nix::sys::stat::lstat(&directory.join(key.file_name())).is_ok())
}

/// Returns the records of one network below `root`, as [`list_known`] does. No file of another network is opened,
/// except files of Postern 0.1: their names don't show the network.
pub fn list_of(root: &Path, network: NetworkKey) -> Result<Vec<Summary>> {
    let listed = list_that(root, |key| !key.is_of_other(network))?;
    let mut summaries = listed.into_iter().map(Summary::known).collect::<Result<Vec<_>>>()?;
    summaries.retain(|summary| {
        let own = summary.header.as_ref().map(|header| NetworkKey::new(header.host_netns_cookie, &header.network));
        own.is_none_or(|own| own == network)
    });
    Ok(summaries)
}

/// The valid attachments of a network, as garbage collection knows them.
#[derive(Debug)]
pub struct Valid {
    /// The network. Records of other networks are not considered.
    pub network: NetworkKey,
    /// The network's valid attachments.
    pub attachments: HashSet<RecordKey>,
}

/// Returns the records of a network that aren't valid. Files of other records are not opened, because the files' names
/// identify the records. Empty files of this network are removed, as by [`tidy`].
pub fn list_collectable(root: &Path, valid: &Valid) -> Result<Vec<Summary>> {
    list_that(root, |key| !key.is_of_other(valid.network) && !valid.attachments.contains(key))
}

/// Returns the records as [`list`] does, without the records in `known`. The files of records in `known` are not
/// opened.
pub fn list_others(root: &Path, known: &HashSet<RecordKey>) -> Result<Vec<Summary>> {
    list_that(root, |key| !known.contains(key))
}

/// Returns the records with `wanted` keys, and all records that were set aside. Empty files with `wanted` keys are
/// removed.
fn list_that(root: &Path, wanted: impl Fn(&RecordKey) -> bool) -> Result<Vec<Summary>> {
    let Some(directory) = open_directory(root)? else { return Ok(Vec::new()) };
    let mut names = directory.names_that(|name| RecordKey::parse(name).is_none_or(|key| wanted(&key)))?;
    names.sort();
    let mut summaries = Vec::new();
    for name in names {
        if let Some(summary) = look(&directory, &name, |_| true) {
            summaries.push(summary);
        } else if RecordKey::parse(&name).is_some() {
            remove_empty(&directory, &name)?;
        }
    }
    Ok(summaries)
}

/// Reads a file of the directory. `None` if the file is no record, has no first line yet, or does not satisfy
/// `is_wanted`.
fn look(directory: &Directory, name: &str, is_wanted: impl Fn(&[u8]) -> bool) -> Option<Summary> {
    let mut summary = Summary {
        path: directory.path_of(name),
        key: RecordKey::parse(name),
        header: None,
        effects: Vec::new(),
        sections: Vec::new(),
        problems: Vec::new(),
        is_of_other_version: false,
        unread: None,
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
            summary.unread = error.is_passing().then_some(error);
            return Some(summary);
        }
    };
    if !is_wanted(&content) {
        return None;
    }
    match parse::<Value>(&summary.path, &content) {
        Ok(parsed) => {
            // `None`: a process is writing the first line, or was killed before it did.
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

/// Removes the empty files of runs that were killed before the first line. These runs made no effects. Returns the
/// number of files.
pub fn tidy(root: &Path) -> Result<usize> {
    let Some(directory) = open_directory(root)? else { return Ok(0) };
    let names = directory.names_that(|name| RecordKey::parse(name).is_some())?;
    names.iter().try_fold(0, |removed, name| Ok(removed + usize::from(remove_empty(&directory, name)?)))
}

/// Removes the record file `name` if it is empty and no process has locked it; true if it was removed.
pub(super) fn remove_empty(directory: &Directory, name: &str) -> Result<bool> {
    let is_empty = |stat: FileStat| stat.st_size == 0 && stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
    if !directory.stat(name).ok().flatten().is_some_and(is_empty) {
        return Ok(false);
    }
    // The file must be locked and still empty, because a process may write its first line just now.
    match locked_file(directory, name, OpenMode::Change, Instant::now()) {
        Ok(Some(file)) if file.metadata().is_ok_and(|meta| meta.len() == 0) => directory.unlink(name),
        _ => Ok(false),
    }
}

/// True if a section has made progress since `time` (milliseconds since 1970).
///
/// A time in the future does not count: the clock was set back after the time was noted. Else the section would seem to
/// make progress until the clock reaches that time.
pub fn has_progress(sections: &[Section], time: u64) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    sections.iter().any(|section| section.since >= time && u128::from(section.since) <= now)
}

/// True if a process works on the attachment `key` below `root`, or has made progress since `time` ([`has_progress`]).
/// The runtime that starts garbage collection may not know such an attachment yet. False if there is no record.
pub fn is_busy(root: &Path, key: &RecordKey, time: u64) -> Result<bool> {
    let Some(directory) = open_directory(root)? else { return Ok(false) };
    let name = &name_in(&directory, key)?;
    let file = match locked_file(&directory, name, OpenMode::Read, Instant::now()) {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(false),
        Err(StateError::Locked { .. }) => return Ok(true),
        Err(error) => return Err(error),
    };
    let path = directory.path_of(name);
    let content = read_all(&file).map_err(|error| StateError::io("read", &path, error))?;
    let Ok(Some(parsed)) = parse::<Value>(&path, &content) else { return Ok(false) };
    Ok(has_progress(&parsed.sections, time))
}
