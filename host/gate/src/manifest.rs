//! The manifest: facts about a plugin. The compilation writes the manifest beside the plugin's code.

use crate::places::TrustedDir;
use crate::plugin_error::{AGAIN, PluginError};
use postern_policy::Form;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// The greatest length of a manifest in bytes. The manifest lists the functions that a plugin imports: about fifty.
const LONGEST: u64 = 256 << 10;

/// The content of `<catalog>/<plugin>.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest<Imports = Names> {
    /// The plugin's name. A plugin that is installed under another name is not run.
    pub plugin: String,
    /// SHA-256 of the component, hexadecimal. A policy can pin this hash.
    pub digest: String,
    /// SHA-256 of the compiled code, hexadecimal.
    pub code: String,
    /// Length of the compiled code in bytes.
    pub size: u64,
    /// The engine for which the code was compiled.
    pub engine: String,
    /// The imported functions: the plugin can use no others.
    pub imports: Imports,
    /// The extent of WASI that the component imports. The field is left out for [`WasiExtent::Small`].
    #[serde(default, skip_serializing_if = "WasiExtent::is_small")]
    pub wasi: WasiExtent,
    /// The versions of CNI that the component named when it was added, oldest first. Earlier versions of postern left
    /// this out. It is also left out for a component that names no versions. Then only policy limits the versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Vec<String>>,
    /// The compiled form of the policy at the time when the plugin was added. Earlier versions of postern left this
    /// out. A run uses the form only if the policy file has the same text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Form>,
    /// The plugin's own version, without a `v` (semantic versioning 2.0.0): a plugin that comes with Postern has the
    /// native plugin's version, followed by Postern's version. Other components name their own version. Earlier
    /// versions of postern left this out. It is also left out for a component that names no version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The version of postern that compiled the component.
    pub postern: String,
}

/// Names of imports, as a list. Earlier versions of postern wrote one text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "another version of postern wrote the imports")]
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

/// The manifest as a run reads it, without the imports. Only commands for people need the imports. The imports are most
/// of the text.
pub type RunManifest = Manifest<IgnoredAny>;

/// The extent of WASI that a component imports. The extent decides which program the sandbox process runs. It is
/// determined when the plugin is installed, and not in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WasiExtent {
    /// The part of WASI that every component needs: the host executable has this part.
    #[default]
    Small,
    /// More than the small part: a separate program has all of WASI, without real files or sockets.
    Whole,
}

impl WasiExtent {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde needs this signature")]
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
            "no plugin \"{plugin}\" is installed: its manifest {} is missing; {AGAIN}",
            Self::path(catalog, plugin).display()
        ))
    }

    /// Reads the manifest of an installed plugin, in a catalog that [`crate::places::trust`] has accepted.
    ///
    /// # Errors
    /// There is no manifest, other users could write to it, or it is invalid.
    pub fn read(catalog: &Path, plugin: &str) -> Result<Self, PluginError> {
        let directory = TrustedDir::open(catalog)?.ok_or_else(|| Self::absent(catalog, plugin))?;
        read_from(&directory, catalog, plugin)
    }
}

impl RunManifest {
    /// Like [`Manifest::read`], but for a run.
    pub(crate) fn of(catalog: &Path, plugin: &str) -> Result<Self, PluginError> {
        let directory = TrustedDir::open(catalog)?.ok_or_else(|| Manifest::absent(catalog, plugin))?;
        read_from(&directory, catalog, plugin)
    }
}

/// Like [`Manifest::read`], but for an open catalog.
pub(crate) fn read_from<Imports: DeserializeOwned>(
    directory: &TrustedDir,
    catalog: &Path,
    plugin: &str,
) -> Result<Manifest<Imports>, PluginError> {
    let path = Manifest::path(catalog, plugin);
    let file = directory.file(&format!("{plugin}.json"))?.ok_or_else(|| Manifest::absent(catalog, plugin))?;
    // The buffer has room for the whole file, so that two system calls read it.
    let length = file.metadata().map_or(0, |meta| meta.len().min(LONGEST));
    let mut text = Vec::with_capacity(usize::try_from(length).unwrap_or_default() + 1);
    file.take(LONGEST).read_to_end(&mut text).map_err(|e| PluginError::unreadable(&path, e))?;
    serde_json::from_slice(&text)
        .map_err(|reason| PluginError(format!("{} is no valid manifest: {reason}; {AGAIN}", path.display())))
}
