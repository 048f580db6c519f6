//! The throwaway catalog: this host, the plugin under another policy, and the plugins that it may delegate to.

use crate::component::Component;
use crate::subject;
use anyhow::{Context, Result};
use postern_gate::PROGRAM;
use postern_gate::catalog::{Floor, Manifest, code_path, sha256};
use postern_gate::places;
use postern_gate::plugin_file;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A CNI bin directory of the throwaway root. It is the whole `CNI_PATH`, so that no native program is found.
pub const BIN: &str = "/learn";

/// Everything that is taken along, read before the node's files are out of sight.
pub struct Luggage {
    host: Vec<u8>,
    /// What runs components that import all of WASI, if it is there.
    wasi: Option<Vec<u8>>,
    /// Files of the catalog, by name.
    catalog: Vec<(String, Vec<u8>)>,
    /// The component, if it is not installed.
    component: Option<Component>,
}

/// What is known of the plugin once it is unpacked.
pub struct Unpacked {
    /// SHA-256 of the component, hexadecimal.
    pub digest: String,
    /// Imports, as a manifest lists them.
    pub imports: Vec<String>,
}

impl Luggage {
    /// Reads the host beside this program, its catalog, and a component file if `target` is one.
    ///
    /// # Errors
    /// One of them can't be read, or is not to be trusted.
    pub fn pack(target: &str) -> Result<Self> {
        let own = std::env::current_exe()?;
        let host = own.with_file_name("postern");
        let catalog = places::catalog().map_err(anyhow::Error::msg)?;
        places::trust(&catalog).map_err(anyhow::Error::msg)?;
        let mut files = Vec::new();
        for entry in fs::read_dir(&catalog).with_context(|| format!("catalog {}", catalog.display()))? {
            let path = entry?.path();
            places::trust(&path).map_err(anyhow::Error::msg)?;
            if let (Some(name), true) = (path.file_name(), path.is_file()) {
                let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
                files.push((name.to_string_lossy().into_owned(), bytes));
            }
        }
        let component = match subject::is_file(target) {
            true => Some(Component::open(Path::new(target))?),
            false => {
                // Says in the words of inspect that there is no such plugin.
                Manifest::read(&catalog, target).map_err(anyhow::Error::msg)?;
                None
            }
        };
        let host = fs::read(&host).with_context(|| format!("the host executable {}", host.display()))?;
        let wasi = fs::read(own.with_file_name(PROGRAM)).ok();
        Ok(Self { host, wasi, catalog: files, component })
    }

    /// Writes it into the throwaway root, the plugin under `name`. It has no policy yet.
    ///
    /// # Errors
    /// The component is refused as `postern add` refuses it, or a file can't be written.
    pub fn unpack(&self, target: &str, name: &str) -> Result<Unpacked> {
        let catalog = Path::new(BIN).join(places::CATALOG);
        fs::create_dir_all(&catalog)?;
        let host = Path::new(BIN).join("postern");
        let programs = [(host.clone(), Some(&self.host)), (Path::new(BIN).join(PROGRAM), self.wasi.as_ref())];
        for (path, bytes) in &programs {
            if let Some(bytes) = bytes {
                fs::write(path, bytes).and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o755)))?;
            }
        }
        // As it is installed.
        let file = Path::new(BIN).join(name);
        let line = plugin_file::line(&host, name).map_err(anyhow::Error::msg)?;
        fs::write(&file, line).and_then(|()| fs::set_permissions(&file, Permissions::from_mode(0o755)))?;
        for (file, bytes) in &self.catalog {
            write(&catalog.join(file), bytes)?;
        }
        let Some(component) = &self.component else {
            let manifest = Manifest::read(&catalog, target).map_err(anyhow::Error::msg)?;
            // Under another name, it is the same code.
            if name != target {
                fs::copy(code_path(&catalog, target), code_path(&catalog, name))?;
                let renamed = Manifest { plugin: name.to_owned(), ..manifest.clone() };
                write(&Manifest::path(&catalog, name), &serde_json::to_vec_pretty(&renamed)?)?;
            }
            return Ok(Unpacked { digest: manifest.digest, imports: manifest.imports });
        };
        let imports = component.imports()?;
        let cwasm = component.compile()?;
        let manifest = Manifest {
            plugin: name.to_owned(),
            digest: component.digest.clone(),
            code: sha256(&cwasm),
            size: cwasm.len() as u64,
            engine: postern_sandbox::engine::fingerprint(),
            wasi: Floor::of(postern_sandbox::needs_all_of_wasi(&imports)),
            imports,
            postern: env!("CARGO_PKG_VERSION").to_owned(),
        };
        write(&code_path(&catalog, name), &cwasm)?;
        write(&Manifest::path(&catalog, name), &serde_json::to_vec_pretty(&manifest)?)?;
        Ok(Unpacked { digest: manifest.digest, imports: manifest.imports })
    }
}

/// Gives the plugin a policy.
///
/// # Errors
/// It can't be written.
pub fn set_policy(name: &str, policy: &str) -> Result<()> {
    write(&Path::new(BIN).join(places::CATALOG).join(format!("{name}.toml")), policy.as_bytes())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o644)))
        .with_context(|| format!("cannot write {}", path.display()))
}
