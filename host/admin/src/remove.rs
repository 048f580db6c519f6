//! `postern remove`: removes a plugin that the operator added.

use crate::account;
use crate::doctor::SHIPPED;
use crate::install::bin_dir::{self, Found};
use crate::install::files;
use crate::install::layout::InstallLayout;
use crate::install::{COMPONENT, ENDINGS};
use crate::{output, subject};
use anyhow::{Context, Result, bail, ensure};
use postern_gate::catalogs::{self, Catalogs};
use postern_gate::places;
use std::path::{Path, PathBuf};

/// Removes a plugin.
///
/// # Errors
/// There is no such plugin, it comes with Postern, an attachment needs it, or a file can't be removed.
pub fn run(plugin: &str) -> Result<()> {
    ensure!(subject::is_name(plugin), "\"{plugin}\" is no name of a plugin");
    let layout = InstallLayout::own()?;
    let catalogs = Catalogs::find().map_err(anyhow::Error::msg)?;
    let (catalog, lock_at) = place(&layout, &catalogs, plugin)?;
    places::trust(&catalog).map_err(anyhow::Error::msg)?;
    let _lock = files::lock(&lock_at)?;
    // If both catalogs have the name, runs and attachments use the installation's plugin.
    let mut gone = Vec::new();
    if !catalogs.both_have(plugin) {
        refuse_used(plugin)?;
        for bin in layout.bins() {
            let path = bin.join(plugin);
            if matches!(Found::at(&path), Found::File(file) if file.host == layout.host() && file.plugin == plugin) {
                bin_dir::take_back(&path)?;
                layout.forget_placed(&path)?;
                gone.push(path.display().to_string());
            }
        }
    }
    // Without its code, a plugin is not there.
    let mut endings = ENDINGS.to_vec();
    endings.sort_by_key(|ending| *ending != "cwasm");
    for ending in endings.into_iter().chain([COMPONENT]) {
        files::remove_all(&catalog.join(format!("{plugin}.{ending}")))?;
    }
    gone.push(catalog.display().to_string());
    output::text(&format!("{plugin}: removed from {}", gone.join(" and ")))
}

/// Returns the catalog with the operator's plugin, and the directory with its lock.
fn place(layout: &InstallLayout, catalogs: &Catalogs, plugin: &str) -> Result<(PathBuf, PathBuf)> {
    let (own, added) = (catalogs.own(), catalogs.added());
    if catalogs::has(added, plugin) {
        return Ok((added.to_owned(), added.parent().unwrap_or(Path::new("/")).to_owned()));
    }
    ensure!(catalogs::has(own, plugin), "there is no plugin \"{plugin}\" in {}", own.display());
    let runtimes = format!("to take it from a runtime, remove {plugin} from the runtime's CNI bin directory");
    if SHIPPED.split(' ').any(|shipped| shipped == plugin) {
        bail!("plugin \"{plugin}\" comes with Postern, and stays; {runtimes}");
    }
    ensure!(
        !layout.is_fixed(),
        "plugin \"{plugin}\" belongs to {}, which no command changes; {runtimes}",
        own.display()
    );
    let real = own.canonicalize().with_context(|| own.display().to_string())?;
    Ok((real, layout.directory().to_owned()))
}

/// Refuses the removal of a plugin that an attachment was made with.
fn refuse_used(plugin: &str) -> Result<()> {
    for attachment in account::attachments()? {
        let has = attachment.plugins.iter().any(|called| called.plugin == plugin);
        ensure!(
            !has,
            "plugin \"{plugin}\" works for container {} on network {}, and its DEL needs the plugin: delete the container first",
            attachment.container.as_deref().unwrap_or("?"),
            attachment.network.as_deref().unwrap_or("?")
        );
    }
    Ok(())
}
