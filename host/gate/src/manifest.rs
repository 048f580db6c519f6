//! What was found out about a plugin when it was compiled, kept beside its code.

use crate::places;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest manifest in bytes: it lists the functions that a plugin imports, and there are some fifty of them.
const LONGEST: u64 = 256 << 10;

/// `<catalog>/<plugin>.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
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
    /// The postern that compiled it.
    pub postern: String,
}

impl Manifest {
    /// Where the manifest of a plugin is.
    pub fn path(catalog: &Path, plugin: &str) -> PathBuf {
        catalog.join(format!("{plugin}.json"))
    }

    /// Reads the manifest of an installed plugin, in a catalog that [`places::trust`] has accepted.
    ///
    /// # Errors
    /// A text for people: there is none, others could have written it, or it makes no sense; and the way out.
    pub fn read(catalog: &Path, plugin: &str) -> Result<Self, String> {
        let path = Self::path(catalog, plugin);
        let Some(file) = places::open_trusted(&path)? else {
            return Err(format!(
                "no plugin \"{plugin}\" is installed: {} is missing, which says what its code has to be; {AGAIN}",
                path.display()
            ));
        };
        let mut text = Vec::new();
        file.take(LONGEST).read_to_end(&mut text).map_err(|e| format!("{}: {e}", path.display()))?;
        serde_json::from_slice(&text).map_err(|e| format!("{} makes no sense: {e}; {AGAIN}", path.display()))
    }
}

/// The way out of everything that is wrong with an installed plugin.
pub(crate) const AGAIN: &str = "install it again: `make install`, or `postern add FILE.wasm --policy FILE`";
