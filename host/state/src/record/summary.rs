//! Records as others see them: what there is, and whose owner is alive.

use super::lines::{Fault, parse};
use super::{CORRUPT, Effect, Header, RecordKey, Section, locked_file, open_directory};
use crate::error::{Result, StateError};
use crate::files::read_all;
use nix::fcntl::OFlag;
use serde_json::Value;
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
}

/// All records below `root`, also those set aside, in order of file name; none if the directory is absent.
///
/// # Errors
/// [`StateError::Untrusted`], [`StateError::Io`] for the directory; a record's own trouble is in its summary.
pub fn list(root: &Path) -> Result<Vec<Summary>> {
    let Some(directory) = open_directory(root, false)? else { return Ok(Vec::new()) };
    let mut names = directory.names()?;
    names.sort();
    let mut summaries = Vec::new();
    for name in names {
        let path = directory.path_of(&name);
        let key = RecordKey::parse(&name);
        let mut summary =
            Summary { path, key, header: None, effects: Vec::new(), sections: Vec::new(), problems: Vec::new() };
        if summary.key.is_none() {
            if !name.contains(CORRUPT) {
                continue;
            }
            summary.problems.push("corrupt, set aside".to_owned());
        }
        let content = match directory.read(&name) {
            Ok(Some(content)) => content,
            Ok(None) => continue,
            Err(error) => {
                summary.problems.push(error.to_string());
                summaries.push(summary);
                continue;
            }
        };
        match parse::<Value>(&summary.path, &content) {
            Ok(Some(parsed)) => {
                summary.header = Some(parsed.header);
                summary.effects = parsed.live;
                summary.sections = parsed.sections;
                summary.problems.extend(parsed.warnings);
            }
            // Being begun, or killed then.
            Ok(None) => continue,
            Err(Fault::Corrupt(detail)) => summary.problems.push(detail),
            Err(Fault::Unusable(error)) => summary.problems.push(error.to_string()),
        }
        summaries.push(summary);
    }
    Ok(summaries)
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
