//! The manifest: the facts about a plugin from its compilation, kept beside its code.

use crate::places::TrustedDir;
use crate::plugin_error::{AGAIN, PluginError};
use postern_policy::Form;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// The greatest length of a manifest in bytes. It lists the functions that a plugin imports; there are some fifty of
/// them.
const LONGEST: u64 = 256 << 10;

/// `<catalog>/<plugin>.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest<Imports = Names> {
    /// The plugin's name. A plugin that is installed under another name is not run.
    pub plugin: String,
    /// SHA-256 of the component, hexadecimal. A policy can pin it.
    pub digest: String,
    /// SHA-256 of the compiled code, hexadecimal.
    pub code: String,
    /// Length of the compiled code in bytes.
    pub size: u64,
    /// The engine that the code was compiled for.
    pub engine: String,
    /// The imports down to functions: the plugin's upper limit.
    pub imports: Imports,
    /// The extent of WASI that it imports. Left out if it is no more than every command needs.
    #[serde(default, skip_serializing_if = "WasiExtent::is_small")]
    pub wasi: WasiExtent,
    /// The versions of CNI that the component named when it was added, oldest first. Left out by earlier versions of
    /// postern, and for a component that names none: then policy alone tells them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Vec<String>>,
    /// The policy that the plugin was added with, as it was read. Left out by earlier versions of postern. A run takes it
    /// only for a policy file with the same text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Form>,
    /// The plugin's own version, without a `v` (semantic versioning 2.0.0): for a plugin that comes with Postern the native
    /// one's, with Postern's own behind it, and else the one that the component says of itself. Left out by earlier
    /// versions of postern, and for a component that says none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The version of postern that compiled it.
    pub postern: String,
}

/// Names of imports, as a list. One text is what an earlier version of postern wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "another version of postern wrote its imports")]
pub enum Names {
    /// The list.
    List(Vec<String>),
}

impl Deref for Names {
    type Target = [String];

    fn deref(&self) -> &[String] {
        let Self::List(names) = self;
        names
    }
}

/// The manifest as a run reads it. Only commands of people need the imports, and they are most of its text.
pub type RunManifest = Manifest<IgnoredAny>;

/// The extent of WASI that a component imports. It decides which program the sandbox process runs. It is found out at
/// install, not by a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WasiExtent {
    /// The part that every command needs: the host itself has it.
    #[default]
    Small,
    /// More: then all of it is there, with nothing behind it, in a separate program.
    Whole,
}

impl WasiExtent {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
    fn is_small(&self) -> bool {
        *self == Self::Small
    }
}

impl Manifest {
    /// Returns the path of a plugin's manifest.
    pub fn path(catalog: &Path, plugin: &str) -> PathBuf {
        catalog.join(format!("{plugin}.json"))
    }

    fn absent(catalog: &Path, plugin: &str) -> PluginError {
        PluginError(format!(
            "no plugin \"{plugin}\" is installed: {} is missing, which says what its code has to be; {AGAIN}",
            Self::path(catalog, plugin).display()
        ))
    }

    /// Reads the manifest of an installed plugin, in a catalog that [`crate::places::trust`] has accepted.
    ///
    /// # Errors
    /// There is none, others could have written it, or it makes no sense.
    pub fn read(catalog: &Path, plugin: &str) -> Result<Self, PluginError> {
        let directory = TrustedDir::open(catalog)?.ok_or_else(|| Self::absent(catalog, plugin))?;
        read_from(&directory, catalog, plugin)
    }
}

impl RunManifest {
    /// As [`Manifest::read`], for a run.
    pub(crate) fn of(catalog: &Path, plugin: &str) -> Result<Self, PluginError> {
        let directory = TrustedDir::open(catalog)?.ok_or_else(|| Manifest::absent(catalog, plugin))?;
        read_from(&directory, catalog, plugin)
    }
}

/// As [`Manifest::read`], if the catalog is open.
pub(crate) fn read_from<Imports: DeserializeOwned>(
    directory: &TrustedDir,
    catalog: &Path,
    plugin: &str,
) -> Result<Manifest<Imports>, PluginError> {
    let path = Manifest::path(catalog, plugin);
    let file = directory.file(&format!("{plugin}.json"))?.ok_or_else(|| Manifest::absent(catalog, plugin))?;
    // With room for all of it, the file is read by two calls.
    let length = file.metadata().map_or(0, |meta| meta.len().min(LONGEST));
    let mut text = Vec::with_capacity(usize::try_from(length).unwrap_or_default() + 1);
    file.take(LONGEST).read_to_end(&mut text).map_err(|e| PluginError::unreadable(&path, e))?;
    serde_json::from_slice(&text)
        .map_err(|reason| PluginError(format!("{} makes no sense: {reason}; {AGAIN}", path.display())))
}
