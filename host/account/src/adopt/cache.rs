//! The result cache of the runtimes (libcni): one file per attachment that an ADD has made and no DEL has ended.

use super::judge::{Cached, Names};
use postern_gate::places;
use postern_state::Header;
use postern_types::Mac;
use serde_json::Value;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Where libcni keeps it unless a runtime says otherwise.
pub(super) const RESULTS: &str = "/var/lib/cni/results";

/// Bytes of an entry that are read: it holds a configuration and a result.
const LIMIT: u64 = 4 << 20;

/// The names of its entries; they are read when they are asked for.
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
        let listing = match std::fs::read_dir(directory) {
            Ok(listing) => listing,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(cache),
            Err(error) => return Err(failed(error)),
        };
        for entry in listing {
            cache.entries.extend(entry.map_err(failed)?.file_name().into_string().ok());
        }
        Ok(cache)
    }

    /// What it says of an attachment. Where several entries may be meant, one that is alive counts before one that doesn't
    /// tell.
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
                "the runtime's cache entry {} doesn't tell whether the container is alive: {why}; remove that file if it \
                 is not",
                path.display()
            ))
        };
        let mut text = String::new();
        match places::open_trusted(&path) {
            Ok(Some(file)) => {
                if let Err(error) = file.take(LIMIT).read_to_string(&mut text) {
                    return unclear(&error.to_string());
                }
            }
            Ok(None) => return Cached::Gone,
            Err(why) => return unclear(&why),
        }
        let json: Option<Value> = serde_json::from_str(&text).ok();
        let netns = json.as_ref().and_then(|json| json.get("netns")).and_then(Value::as_str).unwrap_or_default();
        if !netns.starts_with('/') {
            return unclear("it names no network namespace");
        }
        match Path::new(netns).try_exists() {
            Ok(true) => Cached::Alive,
            Ok(false) => Cached::Gone,
            Err(error) => unclear(&format!("{netns}: {error}")),
        }
    }
}

/// Whether the result that a runtime keeps of an attachment has this address for the container's end: a plugin behind ours
/// (tuning) may have changed it, and the attachment is in order then.
pub(crate) fn was_told(header: &Header, mac: Mac) -> bool {
    let Header { network, container_id, ifname, .. } = header;
    let name = format!("{network}-{container_id}-{ifname}");
    if name.contains('/') {
        return false;
    }
    let mut text = String::new();
    let Ok(Some(file)) = places::open_trusted(&Path::new(RESULTS).join(name)) else { return false };
    if file.take(LIMIT).read_to_string(&mut text).is_err() {
        return false;
    }
    let json: Value = serde_json::from_str(&text).unwrap_or_default();
    let links = json.pointer("/result/interfaces").and_then(Value::as_array);
    links.into_iter().flatten().any(|link| {
        let text = |key: &str| link.get(key).and_then(Value::as_str).unwrap_or_default();
        text("name") == ifname && !text("sandbox").is_empty() && text("mac").parse() == Ok(mac)
    })
}
