//! Networks of a directory, found as libcni finds them.

use crate::list::{List, Plugin};
use postern_cni::{Error, code, validate_network_name};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The largest size of a file, in bytes. A larger file is refused.
const LONGEST: u64 = 4 << 20;

/// `O_NONBLOCK` of open(2): opening a pipe would otherwise wait for a writer.
const NON_BLOCKING: i32 = 0o4000;

/// Finds the network `name` in a directory.
///
/// Files that end in `.conflist` come first, in the order of their names, then single plugins in files that end in
/// `.conf` or `.json`. Plugins in `DIRECTORY/NAME/*.conf` follow the list's plugins, unless the list has
/// `loadOnlyInlinedPlugins`.
///
/// # Errors
/// In libcni's words: there is no such network, or an earlier file is broken.
pub fn load(directory: &Path, name: &str) -> Result<List, Error> {
    load_from(&[directory], name)
}

/// Finds the network `name` in the first of several directories that has such a network.
///
/// # Errors
/// As [`load`].
pub fn load_from(directories: &[impl AsRef<Path>], name: &str) -> Result<List, Error> {
    let mut is_empty = true;
    for directory in directories {
        match look_in(directory.as_ref(), name)? {
            Found::Network(list) => return Ok(list),
            Found::Others => is_empty = false,
            Found::Nothing => {}
        }
    }
    let places: Vec<String> = directories.iter().map(|one| one.as_ref().display().to_string()).collect();
    let places = places.join(" or ");
    Err(Error::config(match is_empty {
        true => format!("no net configurations found in {places}"),
        false => format!("no net configuration with name \"{name}\" in {places}"),
    }))
}

/// The content of a directory, for somebody who wants one network.
enum Found {
    Network(List),
    Others,
    Nothing,
}

fn look_in(directory: &Path, name: &str) -> Result<Found, Error> {
    let lists = files(directory, &["conflist"])?;
    for path in &lists {
        let list = of_file(path)?;
        if list.name == name {
            return Ok(Found::Network(list));
        }
    }
    let single = files(directory, &["conf", "json"])?;
    for path in &single {
        let plugin = Plugin::parse(&contents(path)?)?;
        if plugin.name == name {
            return List::of_single(&plugin).map(Found::Network);
        }
    }
    Ok(if lists.is_empty() && single.is_empty() { Found::Nothing } else { Found::Others })
}

/// Reads a list with the plugins of its directory.
fn of_file(path: &Path) -> Result<List, Error> {
    let mut list = List::parse(&contents(path)?)?;
    // An invalid name gives no directory. Plugins refuse such a name.
    let directory = path.parent().filter(|_| !list.only_inlined && validate_network_name(&list.name).is_ok());
    if let Some(directory) = directory.map(|directory| directory.join(&list.name)) {
        let files = files(&directory, &["conf"])
            .map_err(|error| error.context(format!("failed to read plugin config files in {}", directory.display())))?;
        for path in files {
            list.plugins.push(Plugin::parse(&contents(&path)?)?);
        }
    }
    match list.plugins.is_empty() {
        true => Err(Error::config("no plugin configs found")),
        false => Ok(list),
    }
}

/// Returns the files of a directory with one of these endings, sorted by name. A missing directory has no files.
fn files(directory: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, Error> {
    let unread = |error: io::Error| Error::new(code::IO_FAILURE, format!("open {}: {error}", directory.display()));
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unread(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.map_err(unread)?;
        let name = entry.file_name();
        let ending = name.to_str().and_then(|name| Some(name.rsplit_once('.')?.1));
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_directory && ending.is_some_and(|ending| endings.contains(&ending)) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

fn contents(path: &Path) -> Result<Vec<u8>, Error> {
    read(path, LONGEST)
        .map_err(|error| Error::new(code::IO_FAILURE, format!("error reading {}: {error}", path.display())))
}

/// Reads a regular file of at most `longest` bytes.
///
/// # Errors
/// The file can't be read, is no regular file, or is longer.
pub(crate) fn read(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(NON_BLOCKING).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut content = Vec::new();
    file.take(longest.saturating_add(1)).read_to_end(&mut content)?;
    match u64::try_from(content.len()) {
        Ok(length) if length <= longest => Ok(content),
        _ => Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is longer than {longest} bytes"))),
    }
}
