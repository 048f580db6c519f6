//! A search in the runtimes' cache ([`results`]) for an attachment whose name is known only in part.

use super::judge::{Cached, Names};
use crate::results;
use nix::errno::Errno;
use nix::sys::stat::stat;
use postern_state::Dir;
use serde_json::Value;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The names of the cache's entries. An entry is read only when it is needed.
#[derive(Debug, Default)]
pub(super) struct Cache {
    directory: PathBuf,
    entries: Vec<String>,
}

impl Cache {
    /// Lists the entries: none if there is no cache.
    pub(super) fn open(directory: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        let mut cache = Self { directory: directory.to_owned(), entries: Vec::new() };
        match Dir::open(directory).and_then(|directory| directory.names_that(|_| true)) {
            Ok(entries) => cache.entries = entries,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        Ok(cache)
    }

    /// Returns the state of an attachment in the cache. If several entries match, an entry of a living attachment
    /// counts before an unclear entry.
    pub(super) fn of(&self, names: &Names<'_>) -> Cached {
        let mut cached = Cached::Gone;
        for entry in self.entries.iter().filter(|entry| names.are_of_entry(entry)) {
            match self.read(entry) {
                Cached::Alive => return Cached::Alive,
                Cached::Unclear(why) => cached = Cached::Unclear(why),
                Cached::Gone => {}
            }
        }
        cached
    }

    fn read(&self, entry: &str) -> Cached {
        let path = self.directory.join(entry);
        let unclear = |why: &str| {
            Cached::Unclear(format!(
                "the runtime's cache entry {} doesn't tell whether the container is alive: {why}; remove that file if \
                 the container is gone",
                path.display()
            ))
        };
        let text = match results::read(&path) {
            Ok(Some(text)) => text,
            Ok(None) => return Cached::Gone,
            Err(why) => return unclear(&why),
        };
        let json: Option<Value> = serde_json::from_str(&text).ok();
        let netns = json.as_ref().and_then(|json| json.get("netns")).and_then(Value::as_str).unwrap_or_default();
        if !netns.starts_with('/') {
            return unclear("the entry names no network namespace");
        }
        match stat(netns) {
            Ok(_) => Cached::Alive,
            Err(Errno::ENOENT) => Cached::Gone,
            Err(errno) => unclear(&format!("{netns}: {}", std::io::Error::from(errno))),
        }
    }
}
