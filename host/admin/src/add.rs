//! `postern add`: compile ahead of time, so that nothing is compiled when a runtime waits.

use crate::manifest::Manifest;
use anyhow::{Context, Result, bail, ensure};
use postern_gate::places;
use postern_gate::policy::Policy;
use postern_sandbox::{compile, engine};
use sha2::{Digest, Sha256};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
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
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    ensure!(
        name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(plain) && name != "postern",
        "\"{name}\" is no name for a plugin: it is what network configurations call it by; give another with --name"
    );
    let text = std::fs::read_to_string(policy).with_context(|| format!("policy {}", policy.display()))?;
    let granted = Policy::parse(&text, policy).map_err(anyhow::Error::msg)?;
    let wasm = std::fs::read(file).with_context(|| format!("component {}", file.display()))?;
    let compiled = compile::precompile(&wasm).with_context(|| format!("{}", file.display()))?;
    check_grants(&granted, &compiled.imports)?;

    let catalog = match catalog {
        Some(catalog) => catalog,
        None => places::catalog().map_err(anyhow::Error::msg)?,
    };
    std::fs::create_dir_all(&catalog).with_context(|| format!("catalog {}", catalog.display()))?;
    places::trust(&catalog).map_err(anyhow::Error::msg)?;
    let manifest = Manifest {
        digest: Sha256::digest(&wasm).iter().map(|byte| format!("{byte:02x}")).collect(),
        engine: engine::fingerprint(),
        imports: compiled.imports,
        postern: env!("CARGO_PKG_VERSION").to_owned(),
    };
    // The code goes last: until it is there, a new plugin isn't run; and an old one never runs under a policy that
    // grants more than its own.
    place(&catalog.join(format!("{name}.json")), &serde_json::to_vec_pretty(&manifest)?)?;
    place(&catalog.join(format!("{name}.toml")), text.as_bytes())?;
    place(&catalog.join(format!("{name}.cwasm")), &compiled.cwasm)?;
    println!("{name}: {} imports, sha256 {}", manifest.imports.len(), manifest.digest);
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

/// Writes a file beside its final name and renames it: a run sees the old one or the new one, never half of it.
fn place(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    let written = std::fs::write(&new, bytes)
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
