//! The results of living attachments, in libcni's files: `NETWORK-CONTAINER-INTERFACE` in `/var/lib/cni/results`.
//!
//! A runtime with libcni reads the files that this cache writes, and this cache reads the files of libcni. A broken
//! file counts as no attachment.
//!
//! Names can have hyphens, so two attachments can have one file: network `a-b` with container `c`, and network `a` with
//! container `b-c`. The names in the file decide which attachment has the file. The other attachment has no result.

use crate::files::read;
use crate::{Attachment, List, Outcome};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postern_cni::{
    Error, Json, code, quote, unicode, validate_container_id, validate_interface_name, validate_network_name,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The kind of a file in this format.
const KIND: &str = "cniCacheV1";

/// The longest file in bytes: a list, its base64 form and arguments are shorter.
const LONGEST: u64 = 32 << 20;

/// The cache of results in a directory.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: PathBuf,
}

/// An attachment that the cache knows.
#[derive(Clone, Debug)]
pub struct Cached {
    /// The network's name.
    pub network: String,
    /// The attachment, with its arguments.
    pub attachment: Attachment,
    /// The text of the list that made the attachment.
    pub config: Vec<u8>,
    /// The file.
    pub path: PathBuf,
}

/// A file of the cache.
#[derive(Serialize, Deserialize)]
struct Entry {
    kind: String,
    #[serde(rename = "containerId", default)]
    container_id: String,
    /// The text of the list, in base64.
    #[serde(default)]
    config: String,
    #[serde(rename = "ifName", default)]
    ifname: String,
    #[serde(rename = "networkName", default)]
    network: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    netns: String,
    #[serde(rename = "cniArgs", default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    args: Vec<(String, String)>,
    #[serde(
        rename = "capabilityArgs",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Map::is_empty"
    )]
    capability_args: Map<String, Value>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Map::is_empty")]
    result: Map<String, Value>,
}

impl Entry {
    /// Reads a file of this format.
    fn read(path: &Path) -> Option<Self> {
        Self::parse(&read(path, LONGEST).ok()?)
    }

    /// Reads the content of a file of this format. The bytes are made valid Unicode first, because serde does not check
    /// the parts that it skips. An array is refused, because serde would read its items as the fields, in order.
    fn parse(content: &[u8]) -> Option<Self> {
        let text = Some(unicode::json(content)).filter(|text| text.trim_start().starts_with('{'))?;
        serde_json::from_str::<Self>(&text).ok().filter(|entry| entry.kind == KIND)
    }

    fn is_of(&self, network: &str, attachment: &Attachment) -> bool {
        let own = (network, attachment.container_id.as_str(), attachment.ifname.as_str());
        own == (self.network.as_str(), self.container_id.as_str(), self.ifname.as_str())
    }
}

/// Reads `null` as absent.
fn or_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

impl Cache {
    /// Returns the cache that runtimes share.
    pub fn usual() -> Self {
        Self::of(Path::new("/var/lib/cni"))
    }

    /// Returns the cache below a directory: its files are in `results`.
    pub fn of(directory: &Path) -> Self {
        Self { directory: directory.join("results") }
    }

    fn path(&self, network: &str, attachment: &Attachment) -> Result<PathBuf, Error> {
        let Attachment { container_id, ifname, .. } = attachment;
        if [network, container_id, ifname].iter().any(|name| name.is_empty()) {
            return Err(Error::internal(format!(
                "cache file path requires network name ({}), container ID ({}), and interface name ({})",
                quote(network),
                quote(container_id),
                quote(ifname)
            )));
        }
        // The file's name is made of these names: an invalid name could lead out of the directory.
        validate_container_id(container_id)?;
        validate_network_name(network)?;
        validate_interface_name(ifname)?;
        Ok(self.directory.join(format!("{network}-{container_id}-{ifname}")))
    }

    /// Keeps the result of an attachment.
    ///
    /// # Errors
    /// Code 4 and 7: a name that no plugin accepts. Code 5: the file can't be written, or belongs to another attachment.
    /// Code 999: the result can't be expressed in its version.
    pub fn write(&self, list: &List, attachment: &Attachment, outcome: &Outcome) -> Result<(), Error> {
        let path = self.path(&list.name, attachment)?;
        if let Some(other) = self.of_other(&path, &list.name, attachment) {
            let (network, container, ifname) =
                (quote(&other.network), quote(&other.container_id), quote(&other.ifname));
            return Err(Error::new(
                code::IO_FAILURE,
                format!(
                    "{} has the result of network {network}, container {container}, interface {ifname}: detach that \
                     attachment first, or use another name",
                    path.display()
                ),
            ));
        }
        let entry = Entry {
            kind: KIND.to_owned(),
            container_id: attachment.container_id.clone(),
            config: STANDARD.encode(&list.text),
            ifname: attachment.ifname.clone(),
            network: list.name.clone(),
            netns: attachment.netns.clone(),
            args: attachment.args.clone(),
            capability_args: attachment.capability_args.clone(),
            result: outcome.to_value()?.as_object().cloned().unwrap_or_default(),
        };
        let text = serde_json::to_string(&entry).map_err(|error| Error::internal(error.to_string()))?;
        let unwritten = |error: io::Error| Error::new(code::IO_FAILURE, format!("write {}: {error}", path.display()));
        self.replace(&path, text.as_bytes()).map_err(unwritten)
    }

    /// Puts a file in place in one step. The temporary file lies outside of the directory, because a program that lists
    /// the directory would take the file for an attachment.
    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let temporary = self.directory.with_file_name(format!(".results-{}.tmp", std::process::id()));
        // A killed process with this process ID may have left a file.
        let _ = fs::remove_file(&temporary);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| file.write_all(content))
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Returns the result of an attachment in the version of its list; `None` if the cache has no result.
    ///
    /// # Errors
    /// Code 4 and 7: a name that no plugin accepts. Code 999: the file has no valid result.
    pub fn result(&self, list: &List, attachment: &Attachment) -> Result<Option<Outcome>, Error> {
        // As with libcni, a file that can't be read is no result.
        let Ok(text) = read(&self.path(&list.name, attachment)?, LONGEST) else { return Ok(None) };
        let json = match Entry::parse(&text) {
            Some(entry) if !entry.is_of(&list.name, attachment) => return Ok(None),
            Some(entry) => Json::from(Value::Object(entry.result)),
            // An older libcni wrote only the result into the file.
            None => Json::parse(&text, usize::MAX).map_err(|error| error.with_code(code::INTERNAL))?,
        };
        Outcome::of_cache(&json, &list.version).map(Some)
    }

    /// Removes the result of an attachment, or a broken file. A file that can't be removed stays, and so does another
    /// attachment's file.
    pub fn remove(&self, network: &str, attachment: &Attachment) {
        let Ok(path) = self.path(network, attachment) else { return };
        if self.of_other(&path, network, attachment).is_none() {
            let _ = fs::remove_file(path);
        }
    }

    /// Returns the entry of a file that belongs to another attachment. An entry whose names don't lead to this file
    /// belongs to no attachment: no runtime would find the entry again.
    fn of_other(&self, path: &Path, network: &str, attachment: &Attachment) -> Option<Entry> {
        let entry = Entry::read(path).filter(|entry| !entry.is_of(network, attachment))?;
        let other = Attachment::new(&entry.container_id, "", &entry.ifname);
        self.path(&entry.network, &other).is_ok_and(|own| own == path).then_some(entry)
    }

    /// True if the cache has a result for this interface of the container, in any network.
    pub fn has_interface(&self, attachment: &Attachment) -> bool {
        let is_same =
            |entry: &Entry| entry.container_id == attachment.container_id && entry.ifname == attachment.ifname;
        self.entries().iter().any(is_same)
    }

    /// Returns the attachments of a network.
    pub fn of_network(&self, network: &str) -> Vec<Attachment> {
        let attachment = |entry: Entry| Attachment {
            container_id: entry.container_id,
            netns: entry.netns,
            ifname: entry.ifname,
            args: entry.args,
            capability_args: entry.capability_args,
        };
        self.entries().into_iter().filter(|entry| entry.network == network).map(attachment).collect()
    }

    /// Returns an attachment by its names, if the cache has it.
    pub fn find(&self, network: &str, attachment: &Attachment) -> Option<Cached> {
        let is_own = |found: &Cached| {
            let (is, wanted) = (&found.attachment, attachment);
            (found.network.as_str(), &is.container_id, &is.ifname) == (network, &wanted.container_id, &wanted.ifname)
        };
        self.cached(self.path(network, attachment).ok()?).filter(is_own)
    }

    /// Returns all attachments that the cache has, sorted by file name.
    pub fn all(&self) -> Vec<Cached> {
        self.paths().into_iter().filter_map(|path| self.cached(path)).collect()
    }

    /// Reads the attachment of a file. If the file's name does not fit its content, the file is no attachment: no
    /// runtime would find it again.
    fn cached(&self, path: PathBuf) -> Option<Cached> {
        let Entry { kind: _, container_id, config, ifname, network, netns, args, capability_args, result: _ } =
            Entry::read(&path)?;
        let attachment = Attachment { container_id, netns, ifname, args, capability_args };
        let config = STANDARD.decode(config).ok()?;
        let is_own = self.path(&network, &attachment).is_ok_and(|own| own == path);
        is_own.then_some(Cached { network, attachment, config, path })
    }

    /// Returns all files, sorted by name.
    fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(&self.directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
    }

    /// Reads all files that are attachments, sorted by file name.
    fn entries(&self) -> Vec<Entry> {
        // An entry with a name that no plugin accepts is no attachment.
        let is_attachment = |entry: &Entry| {
            validate_network_name(&entry.network).is_ok()
                && validate_container_id(&entry.container_id).is_ok()
                && validate_interface_name(&entry.ifname).is_ok()
        };
        self.paths().iter().filter_map(|path| Entry::read(path)).filter(is_attachment).collect()
    }
}
