//! `make uninstall`: restores the node to its earlier state, and leaves nothing that a later installation would use.

use super::InstallPaths;
use super::bin_dir::{self, Found};
use super::files;
use super::layout::{InstallLayout, VERSIONS};
use super::units;
use crate::output;
use anyhow::{Context, Result};
use postern_gate::places::INSTALLED;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Removes everything that was installed; a missing object is no error.
///
/// # Errors
/// An object can't be removed.
pub fn uninstall(place: &InstallPaths) -> Result<()> {
    place.check()?;
    let host = InstallLayout::at(place.library()).host();
    let layout = InstallLayout::at(place.real(&place.library()));
    let _lock = layout.directory().is_dir().then(|| files::lock(layout.directory())).transpose()?;
    let was_there = layout.host().symlink_metadata().is_ok();
    let made = layout.made();
    // From both the list and the request: an older installation had no list.
    let bins: BTreeSet<PathBuf> = layout.bins().into_iter().chain([place.cni_bin.clone()]).collect();
    for bin in &bins {
        clear(&place.real(bin), &host, &place.plugins)?;
    }
    let command = place.real(&place.command());
    if fs::read_link(&command).is_ok_and(|target| target == host) {
        files::remove_all(&command)?;
    }
    units::remove(place)?;
    for part in layout.parts() {
        files::remove_all(&part)?;
    }
    // First its own CNI bin directories, then the directory itself, if it has no other files.
    for own_bin in bins.iter().map(|bin| place.real(bin)).filter(|bin| bin.starts_with(layout.directory())) {
        let _ = fs::remove_dir(&own_bin);
    }
    if layout.directory().is_dir() && fs::remove_dir(layout.directory()).is_err() {
        output::say(format!("{} has files that were not installed, and stays", layout.directory().display()));
    }
    give_back(place, made);
    let library = layout.directory().display();
    if was_there {
        let bins: Vec<_> = bins.iter().map(|bin| place.real(bin).display().to_string()).collect();
        output::text(&format!("postern is removed from {library}, and its plugins from {}", bins.join(" and ")))?;
    } else {
        output::text(&format!("there was no postern in {library}"))?;
    }
    let is_last = !INSTALLED.iter().any(|catalog| Path::new(catalog).exists());
    if place.destdir.is_empty() && was_there && is_last {
        forget()?;
    }
    Ok(())
}

/// Removes the directories that installations have made, if they are empty, the deepest first.
fn give_back(place: &InstallPaths, mut made: Vec<PathBuf>) {
    made.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    for path in made {
        let _ = fs::remove_dir(place.real(&path));
    }
}

/// Removes the files of one host executable from a CNI bin directory, and puts the kept files back.
fn clear(bin: &Path, host: &Path, plugins: &[String]) -> Result<()> {
    for entry in fs::read_dir(bin).into_iter().flatten() {
        let path = entry.with_context(|| bin.display().to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // A killed installation had not yet given this file its name.
        if name.starts_with('.') && name.ends_with(files::NEW) {
            files::remove_all(&path)?;
        }
        if bin_dir::is_reserved(&name) {
            continue;
        }
        let is_ours = match Found::at(&path) {
            Found::File(file) => file.host == host,
            Found::Link(target) => target == host || leads_into(&path, host),
            // Without a catalog a copy can't work.
            Found::Copy => true,
            Found::Nothing | Found::Foreign | Found::Directory => false,
        };
        if is_ours {
            bin_dir::take_back(&path)?;
        }
    }
    for plugin in plugins {
        let path = bin.join(plugin);
        let kept = bin_dir::kept(&path);
        match (path.symlink_metadata().is_ok(), kept.symlink_metadata().is_ok()) {
            (false, true) => bin_dir::take_back(&path)?,
            (true, true) => output::say(format!(
                "{} is not Postern's, and stays; what was there earlier stays as {}",
                path.display(),
                kept.display()
            )),
            (_, false) => {}
        }
    }
    Ok(())
}

/// True if a link leads to this host executable, or to one in a version of it.
fn leads_into(link: &Path, host: &Path) -> bool {
    let library = host.parent().unwrap_or(host);
    fs::canonicalize(link).is_ok_and(|real| {
        fs::canonicalize(host).is_ok_and(|host| host == real) || real.starts_with(library.join(VERSIONS))
    })
}

/// Removes data that a later installation would use: notes on verified code and on node objects, the index of leases,
/// and records. Records of attachments are set aside, because they may be needed for a cleanup by hand. They are not
/// used there.
fn forget() -> Result<()> {
    let places = postern_account::places::expected();
    let attachments = fs::read_dir(places.state.join("attachments")).into_iter().flatten().flatten();
    let living = attachments.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.')).count();
    if living > 0 {
        let aside = (1..)
            .map(|number| PathBuf::from(format!("{}.uninstalled-{number}", places.state.display())))
            .find(|path| path.symlink_metadata().is_err())
            .unwrap_or_default();
        fs::rename(&places.state, &aside).with_context(|| format!("cannot set {} aside", places.state.display()))?;
        output::text(&format!(
            "{} had records, which nothing believes any more; they are in {} until the next boot. Native \
             plugins delete what they find of these attachments by its names.",
            output::count(living, "attachment", "attachments"),
            aside.display()
        ))?;
    } else {
        files::remove_all(&places.state)?;
    }
    if places.library != places.state {
        files::remove_all(&places.library)?;
    }
    if places.logs.exists() && places.logs != places.state {
        output::text(&format!("the audit log stays in {}", places.logs.display()))?;
    }
    Ok(())
}
