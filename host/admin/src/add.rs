//! `postern add`: compile ahead of time, so that nothing is compiled when a runtime waits.

use crate::component::Component;
use crate::output;
use crate::subject;
use anyhow::{Context, Result, bail, ensure};
use postern_gate::catalog::{self, Manifest};
use postern_gate::places;
use postern_gate::policy::Policy;
use postern_sandbox::engine;
use std::fs::{OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Places a plugin.
pub fn run(
    file: &Path,
    policy: &Path,
    name: Option<String>,
    catalog: Option<PathBuf>,
    bin: Option<PathBuf>,
) -> Result<()> {
    let name = match name {
        Some(name) => name,
        None => file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default(),
    };
    ensure!(
        subject::is_name(&name),
        "\"{name}\" is no name for a plugin: it is what network configurations call it by; give another with --name"
    );
    let text = std::fs::read_to_string(policy).with_context(|| format!("policy {}", policy.display()))?;
    let granted = Policy::parse(&text, policy).map_err(anyhow::Error::msg)?;
    let component = Component::open(file)?;
    // Before anything has looked into what nobody has looked at; the compiler, which is large, comes last.
    catalog::check_pin(granted.digest(), &component.digest, &name, policy).map_err(anyhow::Error::msg)?;
    let imports = component.imports()?;
    check_grants(&granted, &imports)?;

    let catalog = match catalog {
        Some(catalog) => catalog,
        None => places::catalog().map_err(anyhow::Error::msg)?,
    };
    std::fs::create_dir_all(&catalog).with_context(|| format!("catalog {}", catalog.display()))?;
    places::trust(&catalog).map_err(anyhow::Error::msg)?;
    let cwasm = component.compile()?;
    let manifest = Manifest {
        plugin: name.clone(),
        digest: component.digest,
        code: catalog::sha256(&cwasm),
        size: cwasm.len() as u64,
        engine: engine::fingerprint(),
        imports,
        postern: env!("CARGO_PKG_VERSION").to_owned(),
    };
    // The code goes last. Until it is there, a new plugin isn't run, and an old one doesn't fit the new manifest: it never
    // runs under a policy that grants more than its own.
    place(&Manifest::path(&catalog, &name), &serde_json::to_vec_pretty(&manifest)?)?;
    place(&catalog.join(format!("{name}.toml")), text.as_bytes())?;
    place(&catalog::code_path(&catalog, &name), &cwasm)?;
    output::text(&format!("{name}: {} imports, component sha256:{}", manifest.imports.len(), manifest.digest))?;
    output::text(&format!(
        "{name}: compiled for {}, {} bytes, placed with its policy in {}",
        manifest.engine,
        manifest.size,
        catalog.display()
    ))?;
    match bin {
        Some(bin) => link(&bin, &name),
        None => Ok(()),
    }
}

/// Policy and imports have to fit: a grant that nothing uses is a mistake or a surprise.
fn check_grants(policy: &Policy, imports: &[String]) -> Result<()> {
    let interface = |import: &String| {
        let name = import.strip_prefix("postern:cni/")?;
        name.split_once('@').map(|(interface, _)| interface.to_owned())
    };
    let imported: Vec<String> = imports.iter().filter_map(interface).collect();
    for capability in policy.capabilities() {
        if !imported.iter().any(|name| name == capability) {
            bail!(
                "the policy grants \"{capability}\", which the component does not import: take [grant.{capability}] out"
            );
        }
    }
    Ok(())
}

/// Writes a file beside its final name and renames it: a run sees the old one or the new one, never half of it. At no time
/// could others open it for writing, whatever the umask.
fn place(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    let _ = std::fs::remove_file(&new);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| std::fs::set_permissions(&new, Permissions::from_mode(0o644)))
        .and_then(|()| std::fs::rename(&new, path));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Makes the link that runtimes execute. It leads to the host beside it, or else to this one's.
fn link(bin: &Path, name: &str) -> Result<()> {
    let own = std::env::current_exe()?;
    let installed = own.parent().unwrap_or(Path::new("/")).join("postern");
    let target = if bin.join("postern").is_file() { PathBuf::from("postern") } else { installed };
    let link = bin.join(name);
    let new = bin.join(format!(".{name}.new"));
    let _ = std::fs::remove_file(&new);
    symlink(&target, &new)
        .and_then(|()| std::fs::rename(&new, &link))
        .with_context(|| format!("cannot make the link {}", link.display()))
}
