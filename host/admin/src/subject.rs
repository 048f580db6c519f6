//! The object of an inspection: an installed plugin or a component file, and its policy.

use crate::authority::Grant;
use crate::component::Component;
use crate::imports::Imports;
use crate::install::bin_dir::is_reserved;
use crate::lists::Network;
use crate::own_version;
use anyhow::{Context, Result};
use postern_gate::catalog::Manifest;
use postern_gate::catalogs::Catalogs;
use postern_gate::places;
use postern_gate::{plugin_file, policies};
use postern_policy::{GrantView, Origin, Policy};
use postern_sandbox::component_process::Contents;
use postern_sandbox::engine;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// An analysed component.
pub struct Subject {
    /// The plugin's name, or the file's name.
    pub name: String,
    /// SHA-256 of the component, hexadecimal.
    pub digest: String,
    /// The engine that the component's code is compiled for.
    pub engine: String,
    /// The version of Postern that compiled the component, or would compile it.
    pub postern: String,
    /// The component's own version, if it has one.
    pub version: Option<String>,
    /// The CNI versions that the component named when it was added; `None` for a file.
    pub versions: Option<Vec<String>>,
    /// The component's imports.
    pub imports: Imports,
    /// The plugin's policy; `None` for a file without a policy.
    pub policy: Option<Policy>,
    /// The files of the policy's tables: the shipped or given file, and the operator's file.
    files: [PathBuf; 2],
}

/// True if a plugin may have this name: the name can be a file's name, and Postern does not reserve the name.
pub fn is_name(text: &str) -> bool {
    plugin_file::is_name(text) && !is_reserved(text)
}

impl Subject {
    /// Opens an installed plugin by its name, or a component by its path. `policy` replaces the plugin's policy.
    ///
    /// # Errors
    /// The plugin or file is missing or not trusted, or the host executable would refuse the plugin.
    pub fn open(target: &str, policy: Option<&Path>) -> Result<Self> {
        let given = policy.map(read_policy).transpose()?;
        let mut subject = if is_file(target) { Self::file(Path::new(target))? } else { Self::installed(target)? };
        if let (Some(given), Some(path)) = (given, policy) {
            subject.policy = Some(given);
            subject.files = [path.to_owned(), PathBuf::new()];
        }
        Ok(subject)
    }

    fn installed(name: &str) -> Result<Self> {
        let catalogs = Catalogs::find().map_err(anyhow::Error::msg)?;
        places::trust(catalogs.own()).map_err(anyhow::Error::msg)?;
        let catalog = catalogs.of(name).map_err(anyhow::Error::msg)?;
        let manifest = Manifest::read(catalog, name).map_err(anyhow::Error::msg)?;
        let policy = policies::load_with(None, catalog, name).map_err(anyhow::Error::msg)?;
        Ok(Self {
            name: name.to_owned(),
            digest: manifest.digest,
            engine: manifest.engine,
            postern: manifest.postern,
            version: manifest.version,
            versions: manifest.versions,
            imports: Imports::parse(&manifest.imports),
            policy: Some(policy),
            files: [
                catalog.join(format!("{name}.toml")),
                Path::new(postern_policy::OPERATOR_DIRECTORY).join(format!("{name}.toml")),
            ],
        })
    }

    fn file(path: &Path) -> Result<Self> {
        let component = Component::open(path)?;
        let Contents { imports, version } = component.contents()?;
        Ok(Self {
            name: stem(path),
            imports: Imports::parse(&imports),
            version: version.and_then(|version| own_version::read(&version).ok()),
            digest: component.digest,
            engine: engine::fingerprint(),
            postern: env!("CARGO_PKG_VERSION").to_owned(),
            versions: None,
            policy: None,
            files: [PathBuf::new(), PathBuf::new()],
        })
    }

    /// Makes an invented component.
    #[cfg(test)]
    pub fn bare(imports: &[String], policy: Option<&str>) -> Self {
        let path = Path::new("test.toml");
        Self {
            name: "test".to_owned(),
            digest: String::new(),
            engine: String::new(),
            postern: String::new(),
            version: None,
            versions: None,
            imports: Imports::parse(imports),
            policy: policy.map(|text| Policy::parse(text, &path.display().to_string()).unwrap()),
            files: [path.to_owned(), PathBuf::new()],
        }
    }

    /// Returns the policy's tables as written, or with the values of the network. Without a policy, returns no tables.
    ///
    /// # Errors
    /// The network makes a value of the policy ambiguous.
    pub fn grants(&self, network: Option<&Network>) -> Result<Vec<Grant>> {
        let Some(policy) = &self.policy else { return Ok(Vec::new()) };
        let view = match network {
            None => policy.view(),
            Some(network) => policy.resolve(&network.json(), "").map_err(anyhow::Error::msg)?.view(),
        };
        let grant = |table: GrantView| Grant {
            capability: table.name.to_owned(),
            from: table.from.to_string(),
            file: self.file_of(table.from).display().to_string(),
            objects: table.objects.into_iter().map(|(key, values)| (key.to_owned(), values)).collect(),
        };
        Ok(view.into_iter().map(grant).collect())
    }

    fn file_of(&self, from: Origin) -> &Path {
        let [shipped, operator] = &self.files;
        match from {
            Origin::Shipped => shipped,
            Origin::Operator | Origin::Host => operator,
        }
    }

    /// Returns the digest that the policy demands, and the policy file with this pin.
    pub fn pin(&self) -> Option<Pin> {
        let policy = self.policy.as_ref()?;
        let digest = policy.digest()?.to_owned();
        let file = policy.pin_file().unwrap_or_default().to_owned();
        Some(Pin { matches: digest == self.digest, digest, file })
    }
}

/// A digest that a policy file demands.
#[derive(Debug, Serialize)]
pub struct Pin {
    /// The digest in hexadecimal, as in the file.
    pub digest: String,
    /// The file.
    pub file: String,
    /// True if this component has the digest.
    pub matches: bool,
}

/// True if a target is a path: a plugin's name has no slash, and does not end in `.wasm`.
pub fn is_file(target: &str) -> bool {
    target.contains('/') || Path::new(target).extension().is_some_and(|extension| extension == "wasm")
}

/// Returns the name of a component's file without its ending.
pub fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Reads a policy file that is not installed.
fn read_policy(path: &Path) -> Result<Policy> {
    let text = std::fs::read_to_string(path).with_context(|| format!("policy {}", path.display()))?;
    Policy::parse(&text, &path.display().to_string()).map_err(anyhow::Error::msg)
}
