//! What was found out about a plugin when it was compiled, kept beside its code.

use crate::places::{PlaceError, TrustedDir};
use crate::plugin_error::PluginError;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest manifest in bytes: it lists the functions that a plugin imports, and there are some fifty of them.
const LONGEST: u64 = 256 << 10;

/// `<catalog>/<plugin>.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The plugin's name: what is placed under another one is not run.
    pub plugin: String,
    /// SHA-256 of the component, hexadecimal: what a policy can pin.
    pub digest: String,
    /// SHA-256 of the compiled code, hexadecimal.
    pub code: String,
    /// Length of the compiled code in bytes.
    pub size: u64,
    /// Which engine the code was compiled for.
    pub engine: String,
    /// Imports down to functions: the plugin's ceiling.
    pub imports: Vec<String>,
    /// How much of WASI it imports. Left out where it is no more than every command needs.
    #[serde(default, skip_serializing_if = "Floor::is_small")]
    pub wasi: Floor,
    /// The postern that compiled it.
    pub postern: String,
}

/// How much of WASI a component imports, which decides what its sandbox process runs: found out at install, not by a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Floor {
    /// What every command needs: the host itself has it.
    #[default]
    Small,
    /// More: all of it is there then, with nothing behind it, in a program of its own.
    Whole,
}

impl Floor {
    /// The one for a component that needs all of WASI, or doesn't.
    pub fn of(needs_all: bool) -> Self {
        if needs_all { Self::Whole } else { Self::Small }
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
    fn is_small(&self) -> bool {
        *self == Self::Small
    }
}

impl Manifest {
    /// Where the manifest of a plugin is.
    pub fn path(catalog: &Path, plugin: &str) -> PathBuf {
        catalog.join(format!("{plugin}.json"))
    }

    fn absent(catalog: &Path, plugin: &str) -> PluginError {
        PluginError::NoManifest { plugin: plugin.to_owned(), manifest: Self::path(catalog, plugin) }
    }

    /// Reads the manifest of an installed plugin, in a catalog that [`crate::places::trust`] has accepted.
    ///
    /// # Errors
    /// There is none, others could have written it, or it makes no sense.
    pub fn read(catalog: &Path, plugin: &str) -> Result<Self, PluginError> {
        let directory = TrustedDir::open(catalog)?.ok_or_else(|| Self::absent(catalog, plugin))?;
        Self::read_from(&directory, catalog, plugin)
    }

    /// The same, where the catalog is open.
    pub(crate) fn read_from(directory: &TrustedDir, catalog: &Path, plugin: &str) -> Result<Self, PluginError> {
        let path = Self::path(catalog, plugin);
        let file = directory.file(&format!("{plugin}.json"))?.ok_or_else(|| Self::absent(catalog, plugin))?;
        let mut text = Vec::new();
        file.take(LONGEST).read_to_end(&mut text).map_err(|e| PlaceError::unreadable(&path, e))?;
        serde_json::from_slice(&text).map_err(|e| PluginError::Garbled { manifest: path, reason: e.to_string() })
    }
}
