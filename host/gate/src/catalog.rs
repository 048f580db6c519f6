//! The catalog of compiled code. Code is run only if its path, its manifest and its bytes match.
//!
//! [`open`] does the cheap checks and returns the descriptor. So the sandbox can map the code during the other checks.
//! No guest starts before [`Unverified::verify`] has proven that the code is unchanged since its compilation.
//!
//! Hashing takes longer than all other work of the gate before a plugin starts. So the outcome is noted in the state
//! directory, with the kernel's data about the file. No program can set a file's change time. While the change time is
//! the same, the bytes are the same.

use crate::manifest::{self, RunManifest};
pub use crate::manifest::{Manifest, Names, WasiExtent};

use crate::places::TrustedDir;
use crate::plugin_error::{AGAIN, PluginError};
use crate::program;
use base16ct::lower::encode_string as hex;
use nix::sys::stat::fstat;
use postern_policy::Form;
use postern_state::{Dir, OpenMode};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The directory of the notes, in the state directory.
const VERIFIED: &str = "verified";

/// A note on a file is written only if the file was unchanged for this time, in nanoseconds. The kernel's clock for
/// change times has steps of up to a second on some file systems. A second change within one step would not be seen.
const SETTLED: i128 = 2_000_000_000;

/// The greatest size of a note, in bytes. Real notes are shorter.
const LONGEST_NOTE: u64 = 1 << 10;

/// The number of bytes that are read at once.
const PIECE: usize = 64 << 10;

/// Code that has passed all checks except the check of its bytes.
#[derive(Debug)]
pub struct Unverified {
    file: File,
    manifest: RunManifest,
    catalog: PathBuf,
    plugin: String,
}

/// Returns the path of a plugin's compiled code.
pub fn code_path(catalog: &Path, plugin: &str) -> PathBuf {
    catalog.join(format!("{plugin}.cwasm"))
}

/// Opens a plugin's code in a catalog that [`crate::places::trust`] has accepted, for an engine with this fingerprint.
///
/// # Errors
/// The plugin or its manifest does not exist. Another user could write to the code or manifest. The code is truncated
/// or for another engine.
pub fn open(catalog: &Path, plugin: &str, engine: &str) -> Result<Unverified, PluginError> {
    let code = code_path(catalog, plugin);
    let absent = || {
        let catalog = catalog.display();
        let way_out = "`postern add FILE.wasm --policy FILE` installs a plugin";
        PluginError(format!("there is no plugin \"{plugin}\" in {catalog}; {way_out}"))
    };
    let directory = TrustedDir::open(catalog)?.ok_or_else(absent)?;
    let file = directory.file(&format!("{plugin}.cwasm"))?.ok_or_else(absent)?;
    let manifest: RunManifest = manifest::read_from(&directory, catalog, plugin)?;
    if manifest.plugin != plugin {
        return Err(PluginError(format!(
            "plugin \"{plugin}\" has a wrong name: {} was installed as \"{}\"; {AGAIN}",
            code.display(),
            manifest.plugin
        )));
    }
    let size = file.metadata().map_err(|e| PluginError::unreadable(&code, e))?.len();
    if size != manifest.size {
        return Err(PluginError(format!(
            "the code of plugin \"{plugin}\" is not whole: {} has {size} bytes, and had {} when it was installed; {AGAIN}",
            code.display(),
            manifest.size
        )));
    }
    if engine != manifest.engine {
        return Err(PluginError(format!(
            "the code of plugin \"{plugin}\" was compiled for another engine: {} is for \"{}\", and this host has \
             \"{engine}\"; {AGAIN}",
            code.display(),
            manifest.engine
        )));
    }
    Ok(Unverified { file, manifest, catalog: catalog.to_owned(), plugin: plugin.to_owned() })
}

impl Unverified {
    /// Returns the code for a sandbox. The sandbox maps the code, but must not start it yet.
    pub(crate) fn code(&self) -> Result<OwnedFd, PluginError> {
        self.file.try_clone().map(Into::into).map_err(|e| self.unreadable(e))
    }

    /// Takes the policy's compiled form from the manifest.
    pub fn take_policy(&mut self) -> Option<Form> {
        self.manifest.policy.take()
    }

    /// Returns the program that the plugin's process executes, if the component imports more of WASI than this
    /// executable has. The program is beside the installation's own catalog.
    pub fn program(&self, own: &Path) -> Result<Option<File>, PluginError> {
        match self.manifest.wasi {
            WasiExtent::Small => Ok(None),
            WasiExtent::Whole => program::open(own, &self.plugin).map(Some),
        }
    }

    /// Proves that the bytes have the hash of the manifest, and returns the manifest. A note in the state directory is
    /// enough. Without a note all bytes are read. Without `state`, no note is read or written.
    ///
    /// # Errors
    /// The bytes differ, or can't be read.
    pub fn verify(self, state: Option<&Path>) -> Result<RunManifest, PluginError> {
        let Some(state) = state else { return self.prove().map(|()| self.manifest) };
        let before = self.seen()?;
        let (notes, name) = (state.join(VERIFIED), self.note_name());
        if read_note(&notes, &name).as_ref() != Some(&before) {
            self.prove()?;
            // If the note can't be written, the next run reads the code again. This only costs time.
            if before.is_settled() && self.seen()? == before {
                let _ = write_note(&notes, &name, &before);
            }
        }
        Ok(self.manifest)
    }

    fn prove(&self) -> Result<(), PluginError> {
        let found = hash(&self.file).map_err(|e| self.unreadable(e))?;
        if found == self.manifest.code {
            return Ok(());
        }
        Err(PluginError(format!(
            "the code of plugin \"{}\" was changed or swapped: {} has sha256 {found}, and its manifest {} says {}; find out \
             who changed the code, then {AGAIN}",
            self.plugin,
            self.path().display(),
            Manifest::path(&self.catalog, &self.plugin).display(),
            self.manifest.code
        )))
    }

    fn unreadable(&self, reason: impl std::fmt::Display) -> PluginError {
        PluginError::unreadable(&self.path(), reason)
    }

    fn path(&self) -> PathBuf {
        code_path(&self.catalog, &self.plugin)
    }

    /// Returns the name of the note. Each plugin of each catalog has its own note. The name is a hash, because the
    /// code's path can't be a file's name.
    fn note_name(&self) -> String {
        let name = Sha256::digest(self.path().as_os_str().as_encoded_bytes());
        hex(name.get(..16).unwrap_or_default())
    }

    fn seen(&self) -> Result<Note, PluginError> {
        let stat = fstat(&self.file).map_err(|e| self.unreadable(e))?;
        Ok(Note {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: stat.st_size,
            mtime: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            ctime: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
            code: self.manifest.code.clone(),
        })
    }
}

/// The kernel's data about a file, and the hash of its bytes.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    dev: u64,
    ino: u64,
    size: i64,
    /// Nanoseconds since 1970.
    mtime: i128,
    /// Nanoseconds since 1970.
    ctime: i128,
    code: String,
}

impl Note {
    /// True if a later change of the file would set another change time.
    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        i128::try_from(now).unwrap_or(0) - self.ctime > SETTLED
    }
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
}

/// Reads a note. A note that can't be read counts as missing.
fn read_note(notes: &Path, name: &str) -> Option<Note> {
    let file = Dir::open_itself(notes).ok()?.file(&format!("{name}.json"), OpenMode::Read).ok()?;
    let mut note = Vec::with_capacity(LONGEST_NOTE as usize);
    file.take(LONGEST_NOTE).read_to_end(&mut note).ok()?;
    serde_json::from_slice(&note).ok()
}

fn write_note(notes: &Path, name: &str, note: &Note) -> std::io::Result<()> {
    Dir::make(notes, 0o700)?;
    let new = format!("{name}.{}.new", std::process::id());
    Dir::open_itself(notes)?.replace(&format!("{name}.json"), &new, &serde_json::to_vec(note)?)
}

/// Returns the hash. The file's offset does not move, because the sandbox shares it.
fn hash(file: &File) -> std::io::Result<String> {
    let (mut hasher, mut piece, mut at) = (Sha256::new(), vec![0; PIECE], 0);
    loop {
        match file.read_at(&mut piece, at) {
            Ok(0) => return Ok(hex(&hasher.finalize())),
            Ok(read) => {
                hasher.update(piece.get(..read).unwrap_or_default());
                at += read as u64;
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Returns the SHA-256 in hexadecimal, as in manifests.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Compares the installed component with the policy's pin (`digest = "sha256:…"`), if there is a pin. `file` is the
/// file where an operator would write another pin.
pub fn check_pin(pinned: Option<&str>, installed_digest: &str, plugin: &str, file: &Path) -> Result<(), PluginError> {
    let Some(pinned) = pinned else { return Ok(()) };
    let bare = |digest: &str| digest.strip_prefix("sha256:").unwrap_or(digest).to_ascii_lowercase();
    let (pinned, installed) = (bare(pinned), bare(installed_digest));
    if pinned == installed {
        return Ok(());
    }
    Err(PluginError(format!(
        "plugin \"{plugin}\" is not the component of its policy: the policy pins sha256:{pinned}, and the plugin has \
         sha256:{installed}; look at the changes with `postern inspect --diff OLD NEW`, then set `digest` in {}",
        file.display()
    )))
}

#[cfg(test)]
mod tests;
