//! `make install` and `make uninstall`. All checks come before the first file is placed. The files that runs use change
//! at one instant: only the link `current` of `layout.rs` changes.

pub mod bin_dir;
mod bundle;
pub mod files;
pub mod layout;
pub mod line;
mod remove;
mod units;

pub use remove::{Uninstall, uninstall};

use crate::output;
use anyhow::{Context, Result, bail, ensure};
use bin_dir::{Found, Placement};
use bundle::Bundle;
pub use bundle::ENDINGS;
use files::Ready;
use layout::{CURRENT, DHCP_SERVICE, InstallLayout, LINKS, SCHEMAS, VERSIONS};
use line::line;
use postern_gate::places::{self, CATALOG};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The time for which a replaced version is kept. Every run is shorter.
const KEPT: Duration = Duration::from_secs(3600);

/// The time that runs of an installation without versions get to end. Then its catalog is removed.
const GRACE: Duration = Duration::from_secs(2);

/// The place of an installation.
#[derive(Clone, Debug, clap::Args)]
pub struct InstallPaths {
    /// The root of an image or a package: a prefix of each path. No installed file contains this prefix.
    #[arg(long, value_name = "DIR", default_value = "")]
    destdir: String,
    /// The directory for `lib/postern` and `bin/postern`.
    #[arg(long, value_name = "DIR", default_value = "/usr/local")]
    prefix: PathBuf,
}

impl InstallPaths {
    /// Returns a path below DESTDIR.
    fn real(&self, path: &Path) -> PathBuf {
        PathBuf::from(format!("{}{}", self.destdir, path.display()))
    }

    /// Returns the directories that an installation has to make first, without DESTDIR.
    fn to_make(&self, bin: &Path) -> Vec<PathBuf> {
        let way = |path: &Path| -> Vec<PathBuf> {
            let real = self.real(path);
            let missing = files::missing(&real).len();
            path.ancestors().take(missing).filter(|path| path.parent().is_some()).map(Path::to_owned).collect()
        };
        let (library, command) = (self.library(), self.command());
        let units = units::directory(&self.prefix);
        let command = command.parent().unwrap_or(Path::new("/"));
        let paths = [library.as_path(), bin, command, units.as_path()];
        paths.into_iter().flat_map(way).collect()
    }

    /// Returns the directory of the installation, without DESTDIR, as its files name it.
    fn library(&self) -> PathBuf {
        self.prefix.join("lib/postern")
    }

    /// Returns the path of the command `postern`, a link.
    fn command(&self) -> PathBuf {
        self.prefix.join("bin/postern")
    }

    /// Checks the paths, and the CNI bin directory of the installation.
    fn check(&self, bin: Option<&Path>) -> Result<()> {
        for (name, path) in [("PREFIX", Some(self.prefix.as_path())), ("CNI_BIN", bin)] {
            let is_path = path.is_none_or(|path| path.is_absolute() && path.to_str().is_some());
            ensure!(is_path, "{name} has to be an absolute path: {:?}", path.unwrap_or(Path::new("")));
        }
        ensure!(
            self.destdir.is_empty() || Path::new(&self.destdir).is_absolute(),
            "DESTDIR has to be an absolute path"
        );
        Ok(())
    }
}

/// Installs a build, with the given plugins or with all plugins. `cni_bin` gets their files.
///
/// # Errors
/// A check failed, and nothing was placed. Or the disk is full, and the earlier version continues to work.
pub fn run(build: &Path, place: &InstallPaths, cni_bin: &Path, plugins: &[String]) -> Result<()> {
    place.check(Some(cni_bin))?;
    let all;
    let plugins = if plugins.is_empty() {
        all = bundle::plugins_of(build)?;
        &all
    } else {
        plugins
    };
    let host = InstallLayout::at(place.library()).host();
    let layout = InstallLayout::at(place.real(&place.library()));
    let (bin, command) = (place.real(cni_bin), place.real(&place.command()));
    for from in [build.to_owned(), build.join(CATALOG)] {
        if let Some(mode) = files::writable_by_others(&from) {
            let from = from.display();
            output::say(format!(
                "{from} can be written by others than its owner (mode {mode:o}): its present files are installed"
            ));
        }
    }
    let mut bundle = Bundle::read(build, plugins)?;
    ready_for(&layout, &host, place, cni_bin, plugins)?;
    let made = place.to_make(cni_bin);
    files::make_directory(layout.directory())?;
    files::make_directory(&bin)?;
    let _lock = files::lock(layout.directory())?;
    layout.note_made(&made)?;
    for plugin in plugins {
        Placement::check(&bin, &host, plugin)?;
    }
    for plugin in bundle.take_over(&layout.catalog())? {
        output::say(format!(
            "plugin \"{plugin}\" was compiled for another postern, and will be refused until it is added again: \
             `postern add FILE.wasm --name {plugin} --policy FILE`"
        ));
    }
    let versions = layout.directory().join(VERSIONS);
    files::make_directory(&versions)?;
    let version = bundle.write(&versions)?;
    let placements =
        plugins.iter().map(|plugin| Placement::prepare(&bin, &host, plugin)).collect::<Result<Vec<_>>>()?;
    // The target of the link must exist even after a power cut.
    nix::unistd::syncfs(File::open(&versions)?).with_context(|| versions.display().to_string())?;
    switch(&layout, &version)?;
    if place.destdir.is_empty() {
        // Runs of the earlier version may have made records without claims that this version knows.
        postern_state::forget_complete(&postern_account::places::expected().state)?;
    }
    files::make_directory(command.parent().unwrap_or(Path::new("/")))?;
    Ready::link(&command, &host)?.commit()?;
    if bundle.has(DHCP_SERVICE) {
        units::place(place)?;
    }
    layout.note_bin(cni_bin)?;
    let kept = placements.into_iter().map(Placement::commit).collect::<Result<Vec<_>>>()?;
    tidy(&versions, &version)?;
    for kept in kept.into_iter().flatten() {
        output::text(&format!("the earlier file is kept as {}", kept.display()))?;
    }
    output::text(&format!(
        "postern {version} is installed in {}, its plugins in {}",
        layout.directory().display(),
        bin.display()
    ))?;
    if bundle.has(DHCP_SERVICE) {
        output::text("networks with `dhcp` need the DHCP service: systemctl enable --now postern-dhcp.service")?;
    }
    Ok(())
}

/// Checks all conditions that can be known before anything is changed.
fn ready_for(
    layout: &InstallLayout,
    host: &Path,
    place: &InstallPaths,
    cni_bin: &Path,
    plugins: &[String],
) -> Result<()> {
    for plugin in plugins {
        line(host, plugin)?;
        let path = place.real(&cni_bin.join(plugin));
        ensure!(Found::at(&path) != Found::Directory, "{} is a directory; take it away", path.display());
    }
    let command = place.real(&place.command());
    let is_ours = fs::read_link(&command).is_ok_and(|target| target.ends_with("lib/postern/postern"));
    if command.symlink_metadata().is_ok() && !is_ours {
        bail!("{} is there, and no link of Postern's; take it away", command.display());
    }
    for name in ["postern", "postern-admin", SCHEMAS] {
        let path = layout.directory().join(name);
        let is_directory = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        ensure!(!is_directory, "{} is a directory; take it away", path.display());
    }
    // The directories above an image's root are not the node's directories.
    if place.destdir.is_empty() {
        places::trust(files::nearest(layout.directory())).map_err(anyhow::Error::msg)?;
        bin_dir::judge(cni_bin);
    }
    Ok(())
}

/// Switches new runs to another version, at one instant.
fn switch(layout: &InstallLayout, version: &str) -> Result<()> {
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
        // From now on the old version is out of use.
        let replaced = File::open(layout.directory().join(before));
        let _ = replaced.and_then(|replaced| replaced.set_modified(SystemTime::now()));
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
    Ok(())
}

/// Removes versions that no run can be using any more.
fn tidy(versions: &Path, current: &str) -> Result<()> {
    for entry in fs::read_dir(versions).with_context(|| versions.display().to_string())? {
        let entry = entry?;
        let age = entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|time| time.elapsed().ok());
        if entry.file_name() != current && age.is_some_and(|age| age > KEPT) {
            files::remove_all(&entry.path())?;
        }
    }
    Ok(())
}
