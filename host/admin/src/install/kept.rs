//! Plugins that the operator added to an installation which is removed. The DEL of their attachments needs them.

use super::files;
use super::layout::InstallLayout;
use super::{COMPONENT, ENDINGS, bundle};
use crate::doctor::SHIPPED;
use crate::output;
use anyhow::{Context, Result};
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
    files::replace_within(catalog, &all, "")?;
    let plugins = plugins.join(", ");
    output::text(&format!(
        "these plugins are kept in {ADDED}: {plugins}. After the next installation, `postern add {first} --bin DIR` places a \
         plugin's file in a CNI bin directory again"
    ))
}
