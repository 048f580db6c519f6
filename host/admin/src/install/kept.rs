//! Plugins that the operator added to an installation which is removed. The DEL of their attachments needs them.

use super::files;
use super::layout::InstallLayout;
use super::{COMPONENT, ENDINGS, bundle};
use crate::doctor::SHIPPED;
use crate::output;
use anyhow::{Context, Result};
use nix::unistd::{AccessFlags, access};
use postern_gate::catalogs::{self, ADDED};
use std::fs;
use std::path::Path;

/// Returns the plugins of an installation that did not come with Postern.
pub fn added(layout: &InstallLayout) -> Vec<String> {
    let is_shipped = |plugin: &String| SHIPPED.split(' ').any(|shipped| shipped == plugin);
    let mut plugins = bundle::plugins_of(layout.directory()).unwrap_or_default();
    plugins.retain(|plugin| !is_shipped(plugin));
    plugins
}

/// Moves plugins to the operator's catalog, where the next installation finds them.
///
/// # Errors
/// A plugin's file can't be read, or the catalog can't be changed.
pub fn keep(layout: &InstallLayout, plugins: &[String]) -> Result<()> {
    let Some(first) = plugins.first() else { return Ok(()) };
    let catalog = Path::new(ADDED);
    let mut all = Vec::new();
    for plugin in plugins.iter().filter(|plugin| !catalogs::has(catalog, plugin)) {
        for ending in ENDINGS.into_iter().chain([COMPONENT]) {
            let name = format!("{plugin}.{ending}");
            let path = layout.catalog().join(&name);
            // Not every plugin has its component.
            if path.is_file() {
                all.push((name, fs::read(&path).with_context(|| path.display().to_string())?));
            }
        }
    }
    if !all.is_empty() {
        files::replace_within(catalog, &all, "")?;
    }
    let plugins = plugins.join(", ");
    output::text(&format!(
        "these plugins are kept in {ADDED}: {plugins}. The next installation takes them over; then `postern add {first} --bin DIR` \
         places a plugin's file in a CNI bin directory again"
    ))
}

/// True if an installation takes over the plugins of the operator's catalog: a user's installation can't.
pub fn can_be_taken() -> bool {
    access(ADDED, AccessFlags::W_OK).is_ok()
}

/// Removes the plugins from the operator's catalog that a new version has taken over.
///
/// # Errors
/// A file can't be removed.
pub fn forget_taken(layout: &InstallLayout) -> Result<()> {
    let catalog = Path::new(ADDED);
    let plugins = catalog.parent().map(bundle::plugins_of).and_then(Result::ok).unwrap_or_default();
    let is_taken = |plugin: &&String| catalogs::has(&layout.catalog(), plugin);
    plugins.iter().filter(is_taken).try_for_each(|plugin| remove(catalog, plugin))
}

/// Removes a plugin from a catalog. Without its code, a plugin is not there.
///
/// # Errors
/// A file can't be removed.
pub fn remove(catalog: &Path, plugin: &str) -> Result<()> {
    let mut endings = ENDINGS.to_vec();
    endings.sort_by_key(|ending| *ending != "cwasm");
    let mut endings = endings.into_iter().chain([COMPONENT]);
    endings.try_for_each(|ending| files::remove_all(&catalog.join(format!("{plugin}.{ending}"))))
}
