//! The temporary catalog: this host executable, the plugin under another policy, and the plugins that it may delegate
//! to.

use crate::component::{Component, wasi_extent};
use crate::install::COMPONENT;
use crate::install::line::line;
use crate::subject;
use crate::versions::{self, Answer};
use anyhow::{Context, Result};
use postern_gate::PROGRAM;
use postern_gate::catalog::{Manifest, Names, WasiExtent, code_path, sha256};
use postern_gate::catalogs::Catalogs;
use postern_gate::places;
use postern_policy::Limits;
use std::env::consts::ARCH;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A CNI bin directory of the temporary root. It is the only directory in `CNI_PATH`, so no native program is found.
pub const BIN: &str = "/learn";

/// All files that are copied, read while the node's files can still be reached.
pub struct CopiedFiles {
    host: Vec<u8>,
    /// The executable for components that import all of WASI, if it exists.
    wasi: Option<Vec<u8>>,
    /// Files of the catalog, by name.
    catalog: Vec<(String, Vec<u8>)>,
    /// The component, if it is not installed.
    component: Option<ReadComponent>,
}

/// A component file, read and compiled.
struct ReadComponent {
    digest: String,
    imports: Vec<String>,
    code: Vec<u8>,
}

impl ReadComponent {
    fn of(path: &Path) -> Result<Self> {
        let component = Component::open(path)?;
        let imports = component.imports()?;
        let code = component.compile(ARCH)?;
        Ok(Self { digest: component.digest, imports, code })
    }
}

/// The data of the plugin after unpacking.
pub struct Unpacked {
    /// SHA-256 of the component, hexadecimal.
    pub digest: String,
    /// Imports, as a manifest lists them.
    pub imports: Names,
    /// True if the component names no CNI versions: its policy has to name them.
    pub names_no_versions: bool,
}

impl CopiedFiles {
    /// Reads the host executable beside this program, its catalog, and a component file if `target` is one.
    ///
    /// # Errors
    /// A file can't be read or is not trusted, or the component is refused as in `postern add`.
    pub fn pack(target: &str) -> Result<Self> {
        let own = std::env::current_exe()?;
        let host = own.with_file_name("postern");
        let catalogs = Catalogs::find().map_err(anyhow::Error::msg)?;
        places::trust(catalogs.own()).map_err(anyhow::Error::msg)?;
        let mut files = files_of(catalogs.own(), |_| true)?;
        // A refused catalog has no plugin for a run.
        if catalogs.judge().is_ok() {
            files.extend(files_of(catalogs.added(), |plugin| !catalogs.both_have(plugin))?);
        }
        let component = match subject::is_file(target) {
            true => Some(ReadComponent::of(Path::new(target))?),
            false => {
                // So the error for a missing plugin is the error of `inspect`.
                let catalog = catalogs.of(target).map_err(anyhow::Error::msg)?;
                Manifest::read(catalog, target).map_err(anyhow::Error::msg)?;
                None
            }
        };
        let host = fs::read(&host).with_context(|| format!("the host executable {}", host.display()))?;
        let wasi = fs::read(own.with_file_name(PROGRAM)).ok();
        Ok(Self { host, wasi, catalog: files, component })
    }

    /// Writes the files into the temporary root. The plugin gets the name `name`, and no policy yet.
    ///
    /// # Errors
    /// The component does not answer to VERSION, or a file can't be written.
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
        // The file is placed as in an installation.
        let file = Path::new(BIN).join(name);
        let line = line(&host, name)?;
        fs::write(&file, line).and_then(|()| fs::set_permissions(&file, Permissions::from_mode(0o755)))?;
        for (file, bytes) in &self.catalog {
            write(&catalog.join(file), bytes)?;
        }
        let Some(component) = &self.component else {
            let manifest = Manifest::read(&catalog, target).map_err(anyhow::Error::msg)?;
            // The code does not depend on the name.
            if name != target {
                fs::copy(code_path(&catalog, target), code_path(&catalog, name))?;
                let renamed = Manifest { plugin: name.to_owned(), ..manifest.clone() };
                write(&Manifest::path(&catalog, name), &serde_json::to_vec_pretty(&renamed)?)?;
            }
            let names_no_versions = manifest.versions.is_none();
            return Ok(Unpacked { digest: manifest.digest, imports: manifest.imports, names_no_versions });
        };
        let ReadComponent { digest, imports, code } = component;
        let wasi = wasi_extent(imports);
        let program = (wasi == WasiExtent::Whole).then(|| Path::new(BIN).join(PROGRAM));
        let versions = match versions::ask(name, code, program.as_deref(), &Limits::default())? {
            Answer::Versions(versions, _) => Some(versions::texts(&versions)),
            Answer::None(_) => None,
        };
        let names_no_versions = versions.is_none();
        let manifest = Manifest {
            plugin: name.to_owned(),
            digest: digest.clone(),
            code: sha256(code),
            size: code.len() as u64,
            engine: postern_sandbox::engine::fingerprint(),
            wasi,
            imports: Names::List(imports.clone()),
            versions,
            policy: None,
            version: None,
            postern: env!("CARGO_PKG_VERSION").to_owned(),
        };
        write(&code_path(&catalog, name), code)?;
        write(&Manifest::path(&catalog, name), &serde_json::to_vec_pretty(&manifest)?)?;
        Ok(Unpacked { digest: manifest.digest, imports: manifest.imports, names_no_versions })
    }
}

/// Reads the files of the wanted plugins in a catalog.
fn files_of(catalog: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(catalog).with_context(|| format!("catalog {}", catalog.display()))? {
        let path = entry?.path();
        places::trust(&path).map_err(anyhow::Error::msg)?;
        // No run reads a component.
        let is_component = path.extension().is_some_and(|ending| ending == COMPONENT);
        let plugin = path.file_stem().unwrap_or_default().to_string_lossy();
        if let (Some(name), true) = (path.file_name(), path.is_file() && !is_component && is_wanted(&plugin)) {
            let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
            files.push((name.to_string_lossy().into_owned(), bytes));
        }
    }
    Ok(files)
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
