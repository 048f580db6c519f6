//! Plugins that the operator added to an installation which is removed. The DEL of their attachments needs them.

use super::files;
use super::layout::InstallLayout;
use super::{COMPONENT, ENDINGS, bundle};
use crate::doctor::SHIPPED;
use crate::output;
use anyhow::{Context, Result};
use postern_gate::catalogs::{self, ADDED};
use postern_gate::places::{self, CATALOG};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Returns the plugins of an installation that did not come with Postern.
pub fn added(layout: &InstallLayout) -> Vec<String> {
    let mut plugins = bundle::plugins_of(layout.directory()).unwrap_or_default();
    plugins.retain(|plugin| !is_shipped(plugin));
    plugins
}

/// True for a plugin that comes with Postern.
pub fn is_shipped(plugin: &str) -> bool {
    SHIPPED.split(' ').any(|shipped| shipped == plugin)
}

/// Copies plugins to the operator's catalog, where the next installation finds them. The installation's plugin is the one
/// that ran, so it replaces another plugin of this name.
///
/// # Errors
/// A plugin's file can't be read, or the catalog can't be changed.
pub fn keep(layout: &InstallLayout, plugins: &[String]) -> Result<()> {
    let catalog = Path::new(ADDED);
    let (mut kept, mut all) = (Vec::new(), Vec::new());
    for plugin in plugins {
        let files = files_of(layout, plugin);
        // Runs refuse a plugin that others can change. A copy of root would be trusted.
        if let Err(reason) = files.iter().try_for_each(|path| places::trust(path)) {
            output::say(format!("plugin \"{plugin}\" is not kept: {reason}"));
            continue;
        }
        kept.push(plugin.as_str());
        for path in files {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            all.push((name, fs::read(&path).with_context(|| path.display().to_string())?));
        }
    }
    let Some(first) = kept.first() else { return Ok(()) };
    files::make_directory(Path::new(places::LIBRARY))?;
    let _lock = files::lock(Path::new(places::LIBRARY))?;
    files::replace_within(catalog, &all, "")?;
    // The installation's copy goes next, and a power cut must not take both.
    nix::unistd::syncfs(File::open(catalog)?).with_context(|| catalog.display().to_string())?;
    output::text(&format!(
        "these plugins are kept in {ADDED}: {}. The next installation takes them over; then `postern add {first} --bin DIR` \
         places a plugin's file in a CNI bin directory again",
        kept.join(", ")
    ))
}

/// Returns the files of a plugin. Not every plugin has its component.
fn files_of(layout: &InstallLayout, plugin: &str) -> Vec<PathBuf> {
    let files =
        ENDINGS.into_iter().chain([COMPONENT]).map(|ending| layout.catalog().join(format!("{plugin}.{ending}")));
    files.filter(|path| path.symlink_metadata().is_ok()).collect()
}

/// Returns the plugins of the operator's catalog that neither the present installation nor a build has.
pub fn to_take(layout: &InstallLayout, build: &Path) -> Vec<String> {
    let mut plugins = Path::new(ADDED).parent().map(bundle::plugins_of).and_then(Result::ok).unwrap_or_default();
    let has = |catalog: &Path, plugin: &String| catalogs::has(catalog, plugin);
    plugins.retain(|plugin| !has(&layout.catalog(), plugin) && !has(&build.join(CATALOG), plugin));
    plugins
}

/// Removes plugins from the operator's catalog that a new version has taken over.
///
/// # Errors
/// A file can't be removed.
pub fn forget(layout: &InstallLayout, plugins: &[String]) -> Result<()> {
    if !plugins.is_empty() {
        nix::unistd::syncfs(File::open(layout.directory())?)
            .with_context(|| layout.directory().display().to_string())?;
    }
    plugins.iter().try_for_each(|plugin| remove(Path::new(ADDED), plugin))
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
