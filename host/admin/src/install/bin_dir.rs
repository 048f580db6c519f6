//! Plugins' files in a CNI bin directory. Other files in the directory belong to the operator. They are kept.

use super::files::{Ready, are_same, nearest};
use super::layout::{CURRENT, OPTIONAL, PREVIOUS, PROGRAMS, VERSIONS};
use super::line::line;
use crate::output;
use anyhow::{Context, Result, bail, ensure};
use nix::unistd::{AccessFlags, access};
use postern_gate::places::{self, CATALOG, INSTALLED};
use postern_gate::plugin_file::{self, HOST, PluginFile};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The ending for a foreign file that had a plugin's name.
const KEPT: &str = "native";

/// True for names in a CNI bin directory that no plugin can have: the names of the host executable and of kept files.
pub fn is_reserved(name: &str) -> bool {
    PROGRAMS.contains(&name)
        || OPTIONAL.contains(&name)
        || [CATALOG, CURRENT, PREVIOUS, VERSIONS].contains(&name)
        || name.ends_with(".native")
        || name.contains(".native-")
}

/// The object with a plugin's name in a CNI bin directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A plugin's file, with its host executable and its plugin.
    File(PluginFile),
    /// A link to a host executable, with the path in the link.
    Link(PathBuf),
    /// A copy of the host executable, of this or another version.
    Copy,
    /// Another file: a native plugin.
    Foreign,
    /// A directory.
    Directory,
}

impl Found {
    /// Returns the object that is at a path now.
    pub fn at(path: &Path) -> Self {
        let Ok(meta) = path.symlink_metadata() else { return Self::Nothing };
        let is_host = |path: &Path| path.file_name().is_some_and(|name| name == HOST);
        if meta.is_dir() {
            return Self::Directory;
        }
        if meta.is_symlink() {
            let target = fs::read_link(path).unwrap_or_default();
            let leads_to_host = is_host(&target) || fs::canonicalize(path).is_ok_and(|real| is_host(&real));
            return if leads_to_host { Self::Link(target) } else { Self::Foreign };
        }
        match plugin_file::read(path) {
            Some(file) => Self::File(file),
            None if meta.is_file() && is_copy(path) => Self::Copy,
            None => Self::Foreign,
        }
    }

    /// True if the object is a file of Postern for this plugin, and so can be replaced.
    pub fn is_ours(&self, plugin: &str) -> bool {
        match self {
            Self::File(file) => file.plugin == plugin,
            Self::Link(_) | Self::Copy => true,
            Self::Nothing | Self::Foreign | Self::Directory => false,
        }
    }
}

/// True if a path has exactly the file of this plugin and this host executable, and all users can execute the file.
pub fn is_placed(path: &Path, host: &Path, plugin: &str) -> bool {
    let own = PluginFile { host: host.to_owned(), plugin: plugin.to_owned() };
    let is_executable = || path.symlink_metadata().is_ok_and(|meta| meta.permissions().mode() & 0o111 == 0o111);
    Found::at(path) == Found::File(own) && is_executable()
}

/// True if a copy of the host executable in this directory has a catalog outside of `library`: beside the copy, or in
/// another installation.
pub fn copies_work_without(library: &Path, bin: &Path) -> bool {
    let own = library.join(CATALOG);
    bin.join(CATALOG).exists() || INSTALLED.iter().any(|other| Path::new(other) != own && Path::new(other).exists())
}

/// True for a copy of the host executable: every version contains the names of Postern's directories, and no native
/// plugin contains these names.
fn is_copy(path: &Path) -> bool {
    let [mark, _] = INSTALLED;
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    read.is_ok() && bytes.starts_with(b"\x7fELF") && bytes.windows(mark.len()).any(|part| part == mark.as_bytes())
}

/// Warns if other users could replace the files of a CNI bin directory. The files are placed nevertheless: a runtime
/// starts any file of the directory, and the operator is responsible for the directory.
pub fn judge(bin: &Path) {
    if let Err(reason) = places::trust(nearest(bin)) {
        output::say(format!("{reason}: the runtime starts the programs in {}", bin.display()));
    }
}

/// A plugin's file that is ready to be placed.
#[derive(Debug)]
pub struct Placement {
    path: PathBuf,
    plugin: String,
    ready: Ready,
}

impl Placement {
    /// Checks that the file could be placed. Changes nothing.
    ///
    /// # Errors
    /// The kernel could not start the host executable by such a file, the CNI bin directory is missing, or a directory
    /// has the file's name.
    pub fn check(bin: &Path, host: &Path, plugin: &str) -> Result<()> {
        line(host, plugin)?;
        ensure!(bin.is_dir(), "there is no CNI bin directory {}; make it, or name another directory", bin.display());
        let may = access(bin, AccessFlags::W_OK | AccessFlags::X_OK);
        may.with_context(|| format!("the CNI bin directory {} cannot be written", bin.display()))?;
        let path = bin.join(plugin);
        match Found::at(&path) {
            Found::Directory => bail!("{} is a directory; take it away", path.display()),
            _ => Ok(()),
        }
    }

    /// Writes the file beside its name.
    ///
    /// # Errors
    /// As [`Placement::check`], or the file can't be written.
    pub fn prepare(bin: &Path, host: &Path, plugin: &str) -> Result<Self> {
        Self::check(bin, host, plugin)?;
        let text = line(host, plugin)?;
        let path = bin.join(plugin);
        let ready = Ready::write(&path, text.as_bytes(), 0o755)?;
        Ok(Self { path, plugin: plugin.to_owned(), ready })
    }

    /// Returns the plugin's name.
    pub fn plugin(&self) -> &str {
        &self.plugin
    }

    /// Places the file. A foreign file of that name is kept under another name, which is returned.
    ///
    /// # Errors
    /// The old file can't be kept or replaced.
    pub fn commit(self) -> Result<Option<PathBuf>> {
        let found = Found::at(&self.path);
        let kept = match found == Found::Nothing || found.is_ours(&self.plugin) {
            true => None,
            false => Some(keep(&self.path)?),
        };
        self.ready.commit()?;
        Ok(kept)
    }
}

/// Gives a file a second name, so that the first name is never free. An earlier kept file with other content moves to a
/// name with a number.
fn keep(path: &Path) -> Result<PathBuf> {
    let kept = kept(path);
    if kept.symlink_metadata().is_ok() {
        if is_same(path, &kept) {
            return Ok(kept);
        }
        let free = (1..)
            .map(|number| numbered(&kept, number))
            .find(|candidate| candidate.symlink_metadata().is_err())
            .unwrap_or_default();
        fs::rename(&kept, &free).with_context(|| format!("cannot keep {} as {}", kept.display(), free.display()))?;
        output::say(format!("{}: an earlier kept file is now {}", kept.display(), free.display()));
    }
    let linked = fs::hard_link(path, &kept).or_else(|_| fs::copy(path, &kept).map(drop));
    linked.with_context(|| format!("cannot keep {} as {}", path.display(), kept.display()))?;
    Ok(kept)
}

/// Returns the path at which a file with a plugin's name is kept.
pub fn kept(path: &Path) -> PathBuf {
    path.with_file_name(format!("{}.{KEPT}", name(path)))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// True if two files have the same bytes, or are links to the same target.
fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::read_link(one), fs::read_link(other)) {
        (Ok(one), Ok(other)) => one == other,
        (Err(_), Err(_)) => are_same(one, other),
        _ => false,
    }
}

/// Removes a plugin's file, or puts the kept file back in its place. Then files that were kept earlier go: without
/// Postern, each later file would have replaced them. Without a kept file, an earlier file may be the only copy, and
/// stays.
///
/// # Errors
/// The kernel's error.
pub fn take_back(path: &Path) -> Result<()> {
    let kept = kept(path);
    // An older Postern, which knew only links, may have kept a file of Postern as a native plugin.
    if Found::at(&kept).is_ours(&name(path)) {
        fs::remove_file(&kept).with_context(|| format!("cannot remove {}", kept.display()))?;
    }
    let is_kept = kept.symlink_metadata().is_ok();
    let done = match path.symlink_metadata() {
        _ if is_kept => fs::rename(&kept, path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    };
    done.with_context(|| format!("cannot take {} away", path.display()))?;
    for earlier in earlier(path) {
        if is_kept {
            fs::remove_file(&earlier).with_context(|| format!("cannot remove {}", earlier.display()))?;
        } else {
            output::say(format!("{} stays: it is an earlier file, and the later one is gone", earlier.display()));
        }
    }
    Ok(())
}

/// Returns the files that were kept for a plugin before the last kept file.
pub fn earlier(path: &Path) -> impl Iterator<Item = PathBuf> {
    let kept = kept(path);
    (1..).map(move |number| numbered(&kept, number)).take_while(|path| path.symlink_metadata().is_ok())
}

/// Returns the name for an earlier kept file.
fn numbered(kept: &Path, number: u32) -> PathBuf {
    kept.with_file_name(format!("{}-{number}", name(kept)))
}
