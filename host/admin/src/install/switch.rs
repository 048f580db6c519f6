//! The version that new runs use, and the versions that are kept.

use super::bundle::plugins_of;
use super::files::{self, Ready};
use super::layout::{CURRENT, InstallLayout, LINKS, OPTIONAL, PREVIOUS, VERSIONS};
use super::paths::InstallPaths;
use crate::output;
use anyhow::{Context, Result, bail, ensure};
use postern_gate::places::CATALOG;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The time for which a replaced version is kept. Every run is shorter.
const KEPT: Duration = Duration::from_secs(3600);

/// The time that runs of an installation without versions get to end. Then its catalog is removed.
const GRACE: Duration = Duration::from_secs(2);

/// Switches new runs to another version, at one instant.
pub(super) fn switch(place: &InstallPaths, layout: &InstallLayout, version: &str) -> Result<()> {
    let link = |name: &str, target: &Path| -> Result<()> {
        let path = layout.directory().join(name);
        match fs::read_link(&path) {
            Ok(found) if found == target => Ok(()),
            _ => Ready::link(&path, target)?.commit(),
        }
    };
    let current = layout.directory().join(CURRENT);
    let target = Path::new(VERSIONS).join(version);
    if let Ok(before) = fs::read_link(&current)
        && before != target
    {
        // From now on the old version is out of use, and a rollback may lead to it.
        let replaced = File::open(layout.directory().join(&before));
        let _ = replaced.and_then(|replaced| replaced.set_modified(SystemTime::now()));
        link(PREVIOUS, &before)?;
    }
    link(CURRENT, &target)?;
    let catalog = layout.catalog();
    let is_flat = catalog.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    for name in LINKS {
        if !(name == CATALOG && is_flat) {
            link(name, &Path::new(CURRENT).join(name))?;
        }
    }
    if is_flat {
        // Runs that began with the earlier host executable still use this catalog.
        std::thread::sleep(GRACE);
        Ready::link(&catalog, &Path::new(CURRENT).join(CATALOG))?.replace_directory()?;
    }
    if place.destdir.is_empty() {
        // Runs of the other version may have made records without claims that this version knows.
        postern_state::forget_complete(&postern_account::places::expected().state)?;
    }
    Ok(())
}

/// Returns the directory of the version that new runs use, if all links lead there.
pub(super) fn current(layout: &InstallLayout) -> Option<PathBuf> {
    let link = |name: &str| fs::read_link(layout.directory().join(name)).ok();
    let are_whole = LINKS.iter().all(|name| link(name).is_some_and(|target| target == Path::new(CURRENT).join(name)));
    link(CURRENT).filter(|_| are_whole).map(|version| layout.directory().join(version))
}

/// Removes versions that no run can be using any more. The version before the current version stays: `postern rollback`
/// needs it.
pub(super) fn tidy(layout: &InstallLayout) -> Result<()> {
    let versions = layout.directory().join(VERSIONS);
    let kept = [CURRENT, PREVIOUS].map(|link| version(layout, link));
    for entry in fs::read_dir(&versions).with_context(|| versions.display().to_string())? {
        let entry = entry?;
        let age = entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|time| time.elapsed().ok());
        let is_kept = kept.iter().flatten().any(|name| *name == entry.file_name());
        if !is_kept && age.is_some_and(|age| age > KEPT) {
            files::remove_all(&entry.path())?;
        }
    }
    Ok(())
}

/// Returns the name of the version that a link leads to.
fn version(layout: &InstallLayout, link: &str) -> Option<OsString> {
    Some(fs::read_link(layout.directory().join(link)).ok()?.file_name()?.to_owned())
}

/// The options of `postern rollback`.
#[derive(Debug, clap::Args)]
pub struct Rollback {
    #[command(flatten)]
    place: InstallPaths,
    /// Show the version, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Switches new runs back to the version that the last installation replaced.
///
/// # Errors
/// There is no such version, or the link can't be changed.
pub fn rollback(options: &Rollback) -> Result<()> {
    options.place.check([])?;
    let layout = InstallLayout::at(options.place.real(&options.place.library()));
    let library = layout.directory().display();
    let absent = || format!("{library} has no installation with versions; --prefix names another place");
    ensure!(layout.directory().is_dir(), absent());
    let _lock = files::lock(layout.directory())?;
    let current = version(&layout, CURRENT).with_context(absent)?.to_string_lossy().into_owned();
    let before = version(&layout, PREVIOUS).filter(|before| layout.directory().join(VERSIONS).join(before).is_dir());
    let Some(before) = before else {
        bail!("{library} has no earlier version than {current}: an installation keeps the version that it replaces");
    };
    let before = before.to_string_lossy().into_owned();
    // An installation notes the earlier version first.
    ensure!(
        before != current,
        "the last installation in {library} was interrupted before it replaced {current}: install again"
    );
    let directory = |version: &str| layout.directory().join(VERSIONS).join(version);
    let plugins = |version: &str| plugins_of(&directory(version)).unwrap_or_default();
    let programs = |version: &str| {
        OPTIONAL.into_iter().map(str::to_owned).filter(|name| directory(version).join(name).is_file()).collect()
    };
    for (objects, now, then) in [
        ("plugins, whose runs fail then", plugins(&current), plugins(&before)),
        ("programs", programs(&current), programs(&before)),
    ] {
        let lost: Vec<&str> = now.iter().filter(|name| !then.contains(name)).map(String::as_str).collect();
        if !lost.is_empty() {
            output::say(format!("{before} lacks these {objects}: {}", lost.join(", ")));
        }
    }
    if options.dry_run {
        return output::text(&format!("new runs would use {before} instead of {current}"));
    }
    switch(&options.place, &layout, &before)?;
    output::text(&format!("new runs use {before} instead of {current}; `postern rollback` switches again"))
}
