//! Installed code: whole, its own manifest's, for this engine, and reached by runtimes.

use super::{Examination, MOST, Node, Remedy, Severity};
use postern_gate::catalog;
use postern_gate::drift::quoted;
use postern_sandbox::engine;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// Names of the plugins of a catalog, of which there may be halves only.
pub fn installed(catalog: &Path) -> Vec<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(catalog).into_iter().flatten().flatten().take(MOST) {
        let path = entry.path();
        let is_part = path.extension().is_some_and(|ending| ["cwasm", "json", "toml"].iter().any(|one| ending == *one));
        if is_part && let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            names.insert(name.to_owned());
        }
    }
    names.into_iter().collect()
}

pub fn examine(examination: &mut Examination, node: &Node, bin: &Path) {
    let Ok(catalog) = &node.catalog else { return };
    examination.look("plugins", format!("code and manifests of plugins: {}", node.plugins.join(", ")));
    if node.plugins.is_empty() {
        let remedy = Remedy::Words("make install, or `postern add FILE.wasm --policy FILE`".to_owned());
        examination.found(Severity::Error, catalog.display(), "there is no plugin in it", "nothing can be run", remedy);
    }
    let engine = engine::fingerprint();
    for plugin in &node.plugins {
        // A note on verified code would be a change: there is no directory for one, and all of the code is read.
        let verified =
            catalog::open(catalog, plugin, &engine).and_then(|code| code.verify(Path::new("/proc/self/none")));
        if let Err(reason) = verified {
            let remedy = Remedy::Words(format!("postern add FILE.wasm --name {} --policy FILE", quoted(plugin)));
            let place = catalog::code_path(catalog, plugin);
            examination.found(Severity::Error, place.display(), reason, "every run of it is refused", remedy);
        }
    }
    links(examination, node, bin);
}

/// What runtimes start under the plugins' names.
fn links(examination: &mut Examination, node: &Node, bin: &Path) {
    if !bin.is_dir() {
        return examination
            .leave_out(format!("the CNI bin directory: there is no {} (--bin names another)", bin.display()));
    }
    examination.look("plugins", format!("what {} has under their names", bin.display()));
    let Some(host) = host() else {
        return examination
            .leave_out("what runtimes start: there is no postern beside postern-admin to compare it with");
    };
    for plugin in &node.plugins {
        let path = bin.join(plugin);
        let link = format!("ln -sf {} {}", quoted(&host.display().to_string()), quoted(&path.display().to_string()));
        if !path.exists() {
            let why = "runtimes that look there do not find the plugin";
            examination.found(Severity::Note, path.display(), "is not there", why, Remedy::Command(link));
        } else if !same(&path, &host) {
            let why =
                "runtimes start that program instead, with all of the host's privileges and none of Postern's records";
            examination.found(Severity::Warning, path.display(), "is not this postern", why, Remedy::Command(link));
        }
    }
}

/// The executable that runtimes start, beside this one.
fn host() -> Option<PathBuf> {
    let host = fs::read_link("/proc/self/exe").ok()?.parent()?.join("postern");
    host.is_file().then_some(host)
}

/// Whether both are the same file, or copies: a copy of the host is as good as a link to it.
fn same(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (fs::canonicalize(one), fs::canonicalize(other)) else { return false };
    if one == other {
        return true;
    }
    let length = |path: &Path| fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|meta| meta.len());
    let (Some(first), Some(second)) = (length(&one), length(&other)) else { return false };
    first == second && same_bytes(&one, &other).unwrap_or(false)
}

fn same_bytes(one: &Path, other: &Path) -> std::io::Result<bool> {
    let bytes = |path: &Path| File::open(path).map(|file| BufReader::new(file).bytes());
    let (mut one, mut other) = (bytes(one)?, bytes(other)?);
    loop {
        match (one.next().transpose()?, other.next().transpose()?) {
            (None, None) => return Ok(true),
            (first, second) if first == second => {}
            _ => return Ok(false),
        }
    }
}
