//! `postern remove`: removes a plugin that the operator added.

use crate::account;
use crate::install::bin_dir::{self, Found};
use crate::install::files;
use crate::install::kept;
use crate::install::layout::InstallLayout;
use crate::lists::{self, List};
use crate::{output, subject};
use anyhow::{Context, Error, Result, bail, ensure};
use postern_gate::catalogs::{self, Catalogs};
use postern_gate::effect::Effect;
use postern_gate::places;
use postern_net::Cache;
use postern_state::Header;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Removes a plugin.
///
/// # Errors
/// There is no such plugin, it comes with Postern, an attachment or a network needs it, or a file can't be removed.
pub fn run(plugin: &str) -> Result<()> {
    ensure!(subject::is_name(plugin), "\"{plugin}\" is no name of a plugin");
    let layout = InstallLayout::own()?;
    let catalogs = Catalogs::find().map_err(Error::msg)?;
    let (catalog, lock_at) = place(&layout, &catalogs, plugin)?;
    places::trust(&catalog).map_err(Error::msg)?;
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
    kept::remove(&catalog, plugin)?;
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
    if kept::is_shipped(plugin) {
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

/// Refuses the removal of a plugin that an attachment or a network needs. A record names the plugins that a runtime
/// called, and their delegates. Only configurations name IPAM plugins.
fn refuse_used(plugin: &str) -> Result<()> {
    let (_, accounts) = account::look(&postern_account::places::expected()).map_err(Error::msg)?;
    for account in accounts.map_err(Error::msg)? {
        let is_called = account.sections.iter().any(|section| section.plugin() == plugin);
        let is_delegate =
            |effect: &Effect| matches!(effect, Effect::Delegated(delegated) if delegated.plugin == plugin);
        if is_called || account.effects.iter().any(is_delegate) {
            let header = account.header;
            let of = |part: fn(&Header) -> &str| header.as_ref().map_or("?", part).to_owned();
            works(plugin, &of(|header| &header.container_id), &of(|header| &header.network))?;
        }
    }
    for cached in Cache::usual().all() {
        if List::of(&cached.path, &cached.config).is_ok_and(|list| needs(&list, plugin)) {
            works(plugin, &cached.attachment.container_id, &cached.network).with_context(|| {
                format!("{} has its configuration; if the container is gone: `postern gc`", cached.path.display())
            })?;
        }
    }
    for (path, list) in lists::of_directories(&lists::directories(None)?) {
        ensure!(
            !list.is_ok_and(|list| needs(&list, plugin)),
            "{} needs plugin \"{plugin}\": remove that file, or the plugin from the file, first",
            path.display()
        );
    }
    Ok(())
}

fn works(plugin: &str, container: &str, network: &str) -> Result<()> {
    bail!(
        "plugin \"{plugin}\" works for container {container} on network {network}, and its DEL needs the plugin: \
         delete the container first"
    )
}

/// True if a list names the plugin: as a plugin, IPAM plugin or delegate.
fn needs(list: &List, plugin: &str) -> bool {
    let names =
        |config: Option<&Value>, at: &str| config.and_then(|config| config.pointer(at)?.as_str()) == Some(plugin);
    list.entries().iter().any(|entry| {
        let delegate = entry.get("delegate");
        [entry.plugin(), entry.ipam()].contains(&plugin) || names(delegate, "/type") || names(delegate, "/ipam/type")
    })
}
