//! Records as others see them: what there is, and whose owner is alive.

use super::{CORRUPT, Effect, Fault, Header, RecordKey, locked_file, open_directory, parse};
use crate::error::{Result, StateError};
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
        let mut summary = Summary { path, key, header: None, effects: Vec::new(), problems: Vec::new() };
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

/// Whether a living process holds the record `key` below `root`. No record: no.
///
/// # Errors
/// [`StateError::Untrusted`], [`StateError::Io`].
pub fn is_held(root: &Path, key: &RecordKey) -> Result<bool> {
    let Some(directory) = open_directory(root, false)? else { return Ok(false) };
    match locked_file(&directory, key, false, Instant::now()) {
        Ok(_) => Ok(false),
        Err(StateError::Locked { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}
