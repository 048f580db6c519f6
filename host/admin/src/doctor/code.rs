//! Installed code: whole, its own manifest's, and for this engine.

use super::{Examination, MOST, Node, Remedy, Severity};
use postern_gate::catalog;
use postern_gate::drift::quoted;
use postern_sandbox::engine;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

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

pub fn examine(examination: &mut Examination, node: &Node) {
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
}
