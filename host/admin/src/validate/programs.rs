//! The programs of a network's plugins: a runtime must find them.

use super::finding::{Sheet, below};
use super::network::Entry;
use crate::lists;
use crate::subject;
use postern_gate::catalog;
use postern_gate::catalogs::Catalogs;
use postern_keys::nearest;
use std::collections::BTreeSet;
use std::fs;

/// The most files that are looked at, in all directories together.
const MOST: usize = 4096;

/// Reports plugins that are in none of the directories of `cni_path`.
pub fn check(sheet: &mut Sheet<'_>, entries: &[Entry<'_>], cni_path: &str) {
    let names = names(cni_path);
    for entry in entries {
        let here = |key: &str, node: &super::text::Node| {
            (node.get(key).map_or(node.at, |one| one.at), below(&entry.path, key))
        };
        let plugin = entry.node.word("type");
        if !plugin.is_empty() {
            let (at, path) = here("type", entry.node);
            missing(sheet, plugin, at, &path, cni_path, &names, false);
        }
        // It is unknown whether a plugin of another vendor starts an IPAM program.
        let delegates = sheet.table(plugin).is_some();
        if let Some(ipam) = entry.node.get("ipam").filter(|ipam| delegates && !ipam.word("type").is_empty()) {
            let at = ipam.get("type").map_or(ipam.at, |one| one.at);
            let path = below(&below(&entry.path, "ipam"), "type");
            // A plugin of Postern takes its IPAM plugin from the catalog.
            let is_ours = is_in_catalog(sheet.named(plugin));
            missing(sheet, ipam.word("type"), at, &path, cni_path, &names, is_ours);
        }
    }
}

fn missing(
    sheet: &mut Sheet<'_>,
    plugin: &str,
    at: usize,
    path: &str,
    cni_path: &str,
    names: &BTreeSet<String>,
    from_catalog: bool,
) {
    if plugin.contains('/') {
        let message = format!("{} is a path: runtimes take names only", postern_cni::quote(plugin));
        sheet.error("missing-plugin", at, path, message, "write the name of the program");
        return;
    }
    if lists::is_in(cni_path, plugin) || from_catalog && is_in_catalog(plugin) {
        return;
    }
    let message = format!("there is no plugin {} in {cni_path}", postern_cni::quote(plugin));
    let help = if is_in_catalog(plugin) {
        format!(
            "Postern has this plugin: `postern add {plugin} --bin DIR` places the plugin's file in the runtime's directory"
        )
    } else {
        match nearest(plugin, names.iter().map(String::as_str)) {
            Some(near) => format!("`{near}` may be meant"),
            None => "install the plugin, or name the runtime's directories with --cni-path".to_owned(),
        }
    };
    sheet.error("missing-plugin", at, path, message, help);
}

fn is_in_catalog(plugin: &str) -> bool {
    let has =
        |catalogs: Catalogs| catalogs.of(plugin).is_ok_and(|catalog| catalog::code_path(catalog, plugin).is_file());
    subject::is_name(plugin) && Catalogs::find().is_ok_and(has)
}

/// Returns the names of the programs in these directories, and of all plugins that are shipped with Postern.
fn names(cni_path: &str) -> BTreeSet<String> {
    let entries = cni_path.split(':').filter_map(|directory| fs::read_dir(directory).ok()).flatten().flatten();
    let files = entries.take(MOST).filter_map(|entry| entry.file_name().into_string().ok());
    files
        .filter(|name| !name.contains('.'))
        .chain(postern_keys::ALL.iter().map(|plugin| plugin.name.to_owned()))
        .collect()
}
