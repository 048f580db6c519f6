//! What was found out about a plugin when it was compiled, kept beside its code.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// `<catalog>/<plugin>.json`.
#[derive(Serialize, Deserialize)]
pub struct Manifest {
    /// SHA-256 of the component, hexadecimal.
    pub digest: String,
    /// Which engine the code was compiled for.
    pub engine: String,
    /// Imports down to functions: the plugin's ceiling.
    pub imports: Vec<String>,
    /// The postern that compiled it.
    pub postern: String,
}

impl Manifest {
    /// Reads the manifest of an installed plugin.
    pub fn read(catalog: &Path, plugin: &str) -> Result<Self> {
        let path = catalog.join(format!("{plugin}.json"));
        let text = std::fs::read(&path)
            .with_context(|| format!("no plugin \"{plugin}\" is installed: {} cannot be read", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} makes no sense", path.display()))
    }
}
