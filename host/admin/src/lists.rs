//! The reader of an operator's networks, as lists of plugins or single configurations. It also makes the input that a
//! runtime would give to each plugin (specification, sections 3 and 4 of 1.1.0).

use crate::install::layout::InstallLayout;
use anyhow::{Error, Result, anyhow, bail, ensure};
use nix::fcntl::OFlag;
use postern_cni::unicode;
use postern_gate::plugin_file;
use postern_gate::policies::node_directories;
use serde_json::{Map, Value};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The largest size of a file, in bytes. A larger file is refused.
const LONGEST: u64 = 4 << 20;
/// The endings of the files that runtimes read.
pub const ENDINGS: [&str; 3] = ["conflist", "conf", "json"];
/// The largest number of files that are looked at in a directory.
const MOST: usize = 4096;

/// The runtimes' default directory of plugins.
pub const CNI_BIN: &str = "/opt/cni/bin";

pub use postern_net::DIRECTORIES as CNI_DIRECTORIES;

/// Returns the places of networks and plugins: the given places, else those of `NETCONFPATH` and `CNI_PATH`, else the
/// operator's (`node.toml`), else the runtimes' defaults.
///
/// # Errors
/// The operator's settings are needed, and can't be read.
pub fn places(conf_dir: Option<&Path>, cni_path: Option<&str>) -> Result<postern_net::Places> {
    let given = postern_net::Places {
        conf_dirs: conf_dir.into_iter().map(Path::to_owned).collect(),
        cni_path: cni_path.map(str::to_owned),
    };
    given.or(node_directories).map_err(Error::msg)
}

/// Returns the directories of networks, as [`places`] does.
///
/// # Errors
/// As [`places`].
pub fn directories(given: Option<&Path>) -> Result<Vec<PathBuf>> {
    // No plugin is looked for, so the directories of plugins do not matter.
    Ok(places(given, Some(""))?.conf_dirs())
}

/// Returns the directories of plugins, separated by colons, as [`places`] does.
///
/// # Errors
/// As [`places`].
pub fn cni_path(given: Option<&str>) -> Result<String> {
    Ok(places(Some(Path::new("")), given)?.cni_path())
}

/// True if a program of this name is in one of the directories.
pub fn is_in(cni_path: &str, plugin: &str) -> bool {
    !plugin.contains('/') && cni_path.split(':').any(|directory| Path::new(directory).join(plugin).is_file())
}

/// Returns the plugin of this Postern that a runtime starts by another name: by a link to a plugin's file, or by a copy
/// of the file. `None` if the name is the plugin's own name, or the name of another program.
pub fn behind(cni_path: &str, name: &str) -> Option<String> {
    if name.is_empty() || name.contains('/') {
        return None;
    }
    let path = cni_path.split(':').map(|directory| Path::new(directory).join(name)).find(|path| path.is_file())?;
    let file = plugin_file::read(&path)?;
    let own = InstallLayout::own().ok()?.host();
    let is_own = file.host.canonicalize().ok()? == own.canonicalize().ok()?;
    (is_own && file.plugin != name).then_some(file.plugin)
}

/// A network: a list of plugins, or a single configuration as a list of one.
#[derive(Clone, Debug)]
pub struct List {
    /// The file of the network.
    pub path: PathBuf,
    /// The version that a runtime would choose; `None` if the file has none.
    pub version: Option<Value>,
    name: Value,
    is_single: bool,
    entries: Vec<Entry>,
}

/// One plugin of a list, as written in the list.
#[derive(Clone, Debug)]
pub struct Entry(Map<String, Value>);

/// The input of one plugin of a network.
#[derive(Clone, Debug)]
pub struct Network {
    /// The name of the network's file, for messages.
    pub label: String,
    /// The configuration. From a list, it is the plugin's entry with the name and version of the list.
    pub config: Value,
}

impl List {
    /// Reads a `.conflist` or `.conf`.
    ///
    /// # Errors
    /// The defect, as a predicate of the file: `can't be read`, `is no regular file`, `has no plugins`, … A missing
    /// name is no error here: the plugins refuse a list without a name.
    pub fn read(path: &Path) -> Result<Self, String> {
        Self::of(path, &contents(path)?)
    }

    /// Reads a text in place of the file's text.
    ///
    /// # Errors
    /// As [`List::read`].
    pub fn of(path: &Path, text: &[u8]) -> Result<Self, String> {
        let file = serde_json::from_str(&unicode::json(text)).map_err(|error| format!("is no JSON: {error}"))?;
        let Value::Object(file) = file else { return Err("is no object".to_owned()) };
        let entries = match file.get("plugins") {
            None => vec![Entry(file.clone())],
            Some(Value::Array(entries)) => {
                let object = |entry: &Value| entry.as_object().cloned().map(Entry);
                let entries: Option<Vec<_>> = entries.iter().map(object).collect();
                entries.ok_or("has an entry of \"plugins\" that is no object")?
            }
            Some(_) => return Err("has \"plugins\" that is no list".to_owned()),
        };
        if entries.is_empty() {
            return Err("has no plugins".to_owned());
        }
        if let Some(at) = entries.iter().position(|entry| entry.plugin().is_empty()) {
            return Err(format!("has no \"type\" for plugin {}", at.saturating_add(1)));
        }
        Ok(Self {
            path: path.to_owned(),
            version: version(&file)?,
            name: file.get("name").cloned().unwrap_or_default(),
            is_single: !file.contains_key("plugins"),
            entries,
        })
    }

    /// Returns the network's name; empty if it has none.
    pub fn name(&self) -> &str {
        self.name.as_str().unwrap_or_default()
    }

    /// Returns the entries of the plugins, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the plugins' names, in order.
    pub fn plugins(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(Entry::plugin)
    }

    /// Returns the input of plugin number `at`: its entry with the list's name and version, and the result of the
    /// plugin before it. Of `arguments`, the plugin gets only those that its entry declares as capabilities.
    pub fn request(&self, at: usize, previous: Option<&Value>, arguments: &Map<String, Value>) -> Value {
        let mut request = self.entries.get(at).map(|entry| entry.0.clone()).unwrap_or_default();
        let declared = request.remove("capabilities").unwrap_or_default();
        let declared = |name: &str| declared.get(name).and_then(Value::as_bool) == Some(true);
        let given: Map<String, Value> = arguments
            .iter()
            .filter(|(name, _)| declared(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !given.is_empty() {
            request.insert("runtimeConfig".to_owned(), Value::Object(given));
        }
        request.insert("name".to_owned(), self.name.clone());
        request.extend(self.version.clone().map(|version| ("cniVersion".to_owned(), version)));
        request.extend(previous.map(|result| ("prevResult".to_owned(), result.clone())));
        postern_net::write_whole(&mut request);
        Value::Object(request)
    }

    /// Returns the plugins' inputs, without the data that only a runtime knows.
    pub fn requests(&self) -> impl Iterator<Item = (&Entry, Value)> {
        self.entries.iter().enumerate().map(|(at, entry)| (entry, self.request(at, None, &Map::new())))
    }
}

impl Entry {
    /// Returns the plugin's name.
    pub fn plugin(&self) -> &str {
        self.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the name of the IPAM plugin; empty if the entry names none.
    pub fn ipam(&self) -> &str {
        self.get("ipam").and_then(|ipam| ipam.get("type")).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// True if a key has a value other than null, false, 0 and an empty list.
    pub fn has(&self, key: &str) -> bool {
        match self.get(key) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::Number(number)) => number.as_u64() != Some(0),
            Some(Value::Array(list)) => !list.is_empty(),
            Some(_) => true,
        }
    }

    /// True if a switch is on.
    pub fn is_on(&self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or_default()
    }

    /// Returns host-local's data directory, if the configuration has one.
    pub fn data_directory(&self) -> Option<PathBuf> {
        let path = self.get("ipam")?.get("dataDir")?.as_str()?;
        (!path.is_empty()).then(|| path.into())
    }
}

impl Network {
    /// Returns the host's links in the plugin's `prevResult`, with their addresses as written.
    pub fn links_before(&self) -> Vec<(String, String)> {
        let links = self.config.pointer("/prevResult/interfaces").and_then(Value::as_array);
        let is_host = |link: &&Value| link.get("sandbox").and_then(Value::as_str).is_none_or(str::is_empty);
        let text = |link: &Value, key: &str| link.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        links.into_iter().flatten().filter(is_host).map(|link| (text(link, "name"), text(link, "mac"))).collect()
    }

    /// Returns the names of the container's links in the plugin's `prevResult`.
    pub fn container_links_before(&self) -> Vec<&str> {
        let links = self.config.pointer("/prevResult/interfaces").and_then(Value::as_array);
        let is_in_container =
            |link: &&Value| link.get("sandbox").and_then(Value::as_str).is_some_and(|sandbox| !sandbox.is_empty());
        let names = links.into_iter().flatten().filter(is_in_container).filter_map(|link| link.get("name")?.as_str());
        names.filter(|name| !name.is_empty()).collect()
    }

    /// Reads a configuration for `plugin`. `target` is the name of a network, or a file.
    ///
    /// # Errors
    /// As [`find`] and [`Network::read`].
    pub fn find(target: &str, plugin: &str) -> Result<Self> {
        Self::read(&find(target, &directories(None)?)?, plugin)
    }

    /// Reads a file for `plugin`. A configuration of a single plugin is used as it is. From a list, the first entry
    /// with the plugin as its `type` or `ipam.type` is used.
    ///
    /// # Errors
    /// The file can't be read, is no network configuration, or has nothing for this plugin.
    pub fn read(path: &Path, plugin: &str) -> Result<Self> {
        let label = path.display().to_string();
        let list = List::read(path).map_err(|reason| anyhow!("network configuration {label} {reason}"))?;
        ensure!(list.name.is_string(), "network configuration {label} has no \"name\"");
        let is_meant = |entry: &Entry| list.is_single || [entry.plugin(), entry.ipam()].contains(&plugin);
        let Some((_, config)) = list.requests().find(|(entry, _)| is_meant(entry)) else {
            bail!(
                "network configuration {label} has no plugin \"{plugin}\", only {}; --name gives the plugin's name in \
                the configuration",
                list.plugins().collect::<Vec<_>>().join(", ")
            )
        };
        Ok(Self { label, config })
    }

    /// Returns a text of the configuration; empty if it is absent or not a text.
    pub fn text(&self, pointer: &str) -> &str {
        self.config.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns a text of the configuration; `None` if it is empty.
    pub fn named(&self, pointer: &str) -> Option<String> {
        Some(self.text(pointer)).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// Returns the configuration that policies take their values from.
    pub fn json(&self) -> postern_cni::Json {
        self.config.clone().into()
    }
}

/// Returns the files of networks in a directory, by name, each with the result of [`List::read`]. Returns nothing if
/// the directory can't be read.
pub fn of_directory(directory: &Path) -> Vec<(PathBuf, Result<List, String>)> {
    files(directory).into_iter().map(|path| (path.clone(), List::read(&path))).collect()
}

/// Returns the files of networks in a directory, by name. Returns nothing if the directory can't be read.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten().take(MOST).map(|entry| entry.path());
    let is_network = |path: &PathBuf| path.extension().is_some_and(|ending| ENDINGS.iter().any(|one| ending == *one));
    let mut paths: Vec<PathBuf> = files.filter(is_network).collect();
    paths.sort();
    paths
}

/// Returns the files of networks in several directories, as [`of_directory`] does.
pub fn of_directories(directories: &[PathBuf]) -> Vec<(PathBuf, Result<List, String>)> {
    directories.iter().flat_map(|directory| of_directory(directory)).collect()
}

/// Returns the file of a network. `target` is the name of a network in one of the directories, or a file's path, which
/// is returned.
///
/// # Errors
/// No network and no file has this name.
pub fn find(target: &str, directories: &[PathBuf]) -> Result<PathBuf> {
    let path = Path::new(target);
    let is_file =
        target.contains('/') || path.extension().is_some_and(|one| ENDINGS.iter().any(|ending| one == *ending));
    if is_file {
        return Ok(path.to_owned());
    }
    let mut names = Vec::new();
    // Lists come before single plugins, as in runtimes.
    let in_order = |directory: &PathBuf| {
        let is_list = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "conflist");
        let (lists, single): (Vec<_>, Vec<_>) = files(directory).into_iter().partition(is_list);
        lists.into_iter().chain(single)
    };
    for file in directories.iter().flat_map(in_order) {
        let Some(name) = name_of(&file) else { continue };
        if name == target {
            return Ok(file);
        }
        names.push(name);
    }
    if path.is_file() {
        return Ok(path.to_owned());
    }
    let near = postern_keys::nearest(target, names.iter().map(String::as_str));
    let near = near.map(|near| format!("; \"{near}\" may be meant")).unwrap_or_default();
    let places: Vec<String> = directories.iter().map(|directory| directory.display().to_string()).collect();
    bail!("there is no network \"{target}\" in {}{near}", places.join(" or "))
}

/// Returns the network's name in a file that can be read.
fn name_of(file: &Path) -> Option<String> {
    let value: Value = serde_json::from_str(&unicode::json(&contents(file).ok()?)).ok()?;
    Some(value.get("name")?.as_str()?.to_owned())
}

/// Opens a file.
///
/// # Errors
/// A predicate of the file, as of [`List::read`].
pub fn open(path: &Path) -> Result<File, String> {
    let unread = |error: io::Error| format!("can't be read: {error}");
    // Without `O_NONBLOCK`, opening a pipe would block.
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).map_err(unread)?;
    match file.metadata().map_err(unread)?.is_file() {
        true => Ok(file),
        false => Err("is no regular file".to_owned()),
    }
}

fn contents(path: &Path) -> Result<Vec<u8>, String> {
    let unread = |error: io::Error| format!("can't be read: {error}");
    let file = open(path)?;
    let mut contents = Vec::new();
    let length = file.take(LONGEST + 1).read_to_end(&mut contents).map_err(unread)?;
    match u64::try_from(length) {
        Ok(..=LONGEST) => Ok(contents),
        _ => Err("is far too long for a network".to_owned()),
    }
}

/// Returns the version that a runtime chooses. If `cniVersions` has no known version, `cniVersion` stays unchanged, and
/// the plugins judge it.
fn version(file: &Map<String, Value>) -> Result<Option<Value>, String> {
    match file.contains_key("cniVersions") {
        true => postern_net::version(file).map(|version| Some(version.into())),
        false => Ok(file.get("cniVersion").cloned()),
    }
    .map_err(|error| format!("has no version to choose: {error}"))
}

#[cfg(test)]
mod tests;
