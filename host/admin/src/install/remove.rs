//! `postern uninstall`, `make uninstall`: restores the node to its earlier state, and leaves no data that a later
//! installation would use. The objects are listed before their removal.

use super::bin_dir::{self, Found};
use super::divert::Diversions;
use super::layout::{BUNDLE, InstallLayout, VERSIONS};
use super::paths::{InstallPaths, are_same};
use super::watch::Stops;
use super::{files, kept, records, units};
use crate::lists::{CNI_BIN, CNI_DIRECTORIES};
use crate::output::{self, confirmed};
use anyhow::{Context, Result, bail, ensure};
use postern_gate::catalogs::ADDED;
use postern_gate::policies::node_directories;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The options of `postern uninstall`.
#[derive(Debug, clap::Args)]
pub struct Uninstall {
    #[command(flatten)]
    place: InstallPaths,
    /// Remove only the plugins' files in this CNI bin directory.
    #[arg(long = "bin-dir", alias = "cni-bin", value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// Remove without asking.
    #[arg(long)]
    yes: bool,
    /// Show what would be removed, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// A package's script calls: records and notes stay as they are. The script removes them when the package is purged.
    #[arg(long, hide = true)]
    keep_state: bool,
    /// A package's script calls, or the package is gone: the installation may be removed.
    #[arg(long, hide = true)]
    from_package: bool,
    /// Stay after the removal until SIGTERM or SIGINT, in a pod: Kubernetes would start a process that ends again.
    #[arg(long, requires = "yes", conflicts_with = "dry_run")]
    stay: bool,
    /// Always an error: a user who names a plugin wants to remove that plugin, and not all of Postern.
    #[arg(hide = true)]
    plugin: Option<String>,
}

/// The objects to remove.
struct Removal {
    place: InstallPaths,
    /// The installation.
    layout: InstallLayout,
    /// Its host executable, without DESTDIR, as plugins' files name it.
    host: PathBuf,
    /// The names of the installed plugins: native plugins of these names are put back.
    plugins: Vec<String>,
    /// The CNI bin directories that lose their files, without DESTDIR.
    bins: BTreeSet<PathBuf>,
    /// True if only the files of one directory are removed; the host executable stays.
    is_partial: bool,
    /// Directories that keep their files.
    others: Vec<PathBuf>,
    /// True if records and notes are removed as well: this is the last installation.
    is_last: bool,
    /// The host executable of another installation that plugins' files start: it uses the records.
    other_host: Option<PathBuf>,
    /// Plugins that the operator added, and that attachments or a later installation may need.
    kept_plugins: Vec<String>,
}

/// Removes everything that was installed, or the plugins' files of one directory. A missing object is no error.
///
/// # Errors
/// An object can't be removed.
pub fn uninstall(options: &Uninstall) -> Result<ExitCode> {
    let stops = options.stay.then(Stops::new).transpose()?;
    let status = remove(options)?;
    if let Some(stops) = stops.filter(|_| options.plugin.is_none()) {
        stops.wait()?;
    }
    Ok(status)
}

fn remove(options: &Uninstall) -> Result<ExitCode> {
    if let Some(plugin) = &options.plugin {
        output::usage(&format!(
            "postern: uninstall removes all of Postern, and takes no plugin's name. To take \"{plugin}\" from a runtime, remove \
             its file from the CNI bin directory. If there is a file {plugin}.native, rename it to {plugin}: it was \
             there before Postern."
        ));
        return Ok(ExitCode::from(crate::USAGE));
    }
    options.place.check(&options.bin_dir)?;
    let layout = InstallLayout::at(options.place.real(&options.place.library()));
    let _lock = layout.directory().is_dir().then(|| files::lock(layout.directory())).transpose()?;
    if let Some((means, command)) =
        package_manager(&layout).filter(|_| !options.from_package && options.bin_dir.is_none())
    {
        bail!(
            "{} belongs to a package ({means}), whose manager would not know of the removal: {command} removes it. If the \
             package is gone already, add --from-package",
            layout.directory().display()
        );
    }
    let mut removal = Removal::of(&options.place, layout, options.bin_dir.as_deref());
    if options.place.destdir.is_empty() && !removal.is_partial && (options.keep_state || records::are_needed()) {
        removal.kept_plugins = kept::added(&removal.layout);
    }
    removal.is_last &= !options.keep_state;
    removal.bins.iter().try_for_each(|bin| options.place.keep_below(bin))?;
    if !removal.is_there() {
        output::text(&format!(
            "there was no postern in {}; --prefix names another place",
            removal.layout.directory().display()
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(
        options.bin_dir.is_some() || !removal.layout.is_fixed(),
        "{} belongs to an image, and no command removes it. Before the image goes, `postern uninstall --prefix {} --bin-dir DIR` \
         removes the plugins' files from a CNI bin directory",
        removal.layout.directory().display(),
        options.place.prefix().display()
    );
    if options.dry_run {
        output::text(&removal.words())?;
        output::text("nothing was changed")?;
        return Ok(ExitCode::SUCCESS);
    }
    if !options.yes {
        output::text(&removal.words())?;
        if !confirmed("remove the listed objects?")? {
            output::text("nothing was changed; `postern uninstall --yes` removes the listed objects")?;
            // The exit status shows a script that Postern is still there.
            return Ok(ExitCode::FAILURE);
        }
    }
    removal.carry_out().map(|()| ExitCode::SUCCESS)
}

/// Returns the means of an installation that belongs to a package, and the command that removes the package.
fn package_manager(layout: &InstallLayout) -> Option<(&'static str, &'static str)> {
    match layout.means()?.as_str() {
        "deb" => Some(("deb", "`apt remove postern`")),
        "rpm" => Some(("rpm", "`dnf remove postern`")),
        _ => None,
    }
}

impl Removal {
    fn of(place: &InstallPaths, layout: InstallLayout, only: Option<&Path>) -> Self {
        let host = InstallLayout::at(place.library()).host();
        // An older installation had no list of directories.
        let mut bins: BTreeSet<PathBuf> = layout.bins().into_iter().chain([PathBuf::from(CNI_BIN)]).collect();
        let mut others = Vec::new();
        if let Some(only) = only {
            let real = |bin: &Path| place.real(bin).canonicalize().unwrap_or_else(|_| place.real(bin));
            let is_meant = |bin: &Path| real(bin) == real(only);
            let has_files = |bin: &Path| files_in(&place.real(bin), &host).next().is_some();
            others = bins.iter().filter(|bin| !is_meant(bin) && has_files(bin)).cloned().collect();
            bins.retain(|bin| is_meant(bin));
            bins.insert(only.to_owned());
        }
        let plugins = super::bundle::plugins_of(layout.directory()).unwrap_or_default();
        let was_there = has_parts(&layout);
        let is_partial = only.is_some();
        let (_, named) = node_directories().unwrap_or_default();
        let searched = bins.iter().map(PathBuf::as_path).chain(CNI_DIRECTORIES.map(Path::new));
        let searched = searched.chain(named.iter().map(Path::new));
        let other_host = searched.flat_map(|bin| started_in(&place.real(bin), &host)).next();
        let is_last =
            place.destdir.is_empty() && was_there && !is_partial && other_host.is_none() && !place.has_other();
        let kept_plugins = Vec::new();
        Self {
            place: place.clone(),
            layout,
            host,
            plugins,
            bins,
            is_partial,
            others,
            is_last,
            other_host,
            kept_plugins,
        }
    }

    fn is_there(&self) -> bool {
        has_parts(&self.layout)
            || self.bins.iter().any(|bin| files_in(&self.place.real(bin), &self.host).next().is_some())
    }

    /// Returns the list of removed objects, for people.
    fn words(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        for bin in self.bins.iter().map(|bin| self.place.real(bin)) {
            let count = files_in(&bin, &self.host).count();
            let native = self.plugins.iter().filter(|plugin| bin_dir::kept(&bin.join(plugin)).exists()).count();
            if count > 0 {
                let native = match native {
                    0 => String::new(),
                    native => format!("; {} put back", output::count(native, "native plugin is", "native plugins are")),
                };
                let is_kept = |path: &PathBuf| bin_dir::kept(path).exists();
                let paths = self.plugins.iter().map(|plugin| bin.join(plugin)).filter(is_kept);
                let native = match paths.map(|path| bin_dir::earlier(&path).count()).sum() {
                    0 => native,
                    earlier => {
                        format!("{native}; {} removed", output::count(earlier, "earlier file is", "earlier files are"))
                    }
                };
                lines.push(format!(
                    "{} of Postern in {}{native}",
                    output::count(count, "file", "files"),
                    bin.display()
                ));
            }
        }
        let library = self.layout.directory().display();
        if !self.is_partial {
            let plugins = output::count(self.plugins.len(), "plugin", "plugins");
            lines.push(format!("{library}: the host and {plugins}, with their policies"));
        }
        let mut kept = self.kept();
        if !self.kept_plugins.is_empty() {
            kept.push_str(&format!("\nthese plugins are moved to {ADDED}: {}", self.kept_plugins.join(", ")));
        }
        match (&self.other_host, self.is_last) {
            (_, true) if records::are_needed() => kept.push_str(&format!(
                "\nthe records of {} are moved to /run; leases and added plugins stay",
                records::living()
            )),
            (_, true) => {
                lines.push("records, notes and leases".to_owned());
                if let Some(Ok(added)) = Path::new(ADDED).parent().map(super::bundle::plugins_of) {
                    lines.push(format!("{ADDED}: {}", added.join(", ")));
                }
            }
            (Some(host), false) => kept.push_str(&format!("\nrecords stay: plugins' files start {}", host.display())),
            (None, false) => {}
        }
        let lines: String = lines.iter().map(|line| format!("  {line}\n")).collect();
        format!("these are removed:\n{lines}{}", kept.trim_start())
    }

    /// Returns the list of objects that stay for other directories.
    fn kept(&self) -> String {
        let others: Vec<_> = self.others.iter().map(|bin| self.place.real(bin).display().to_string()).collect();
        let library = self.layout.directory().display();
        match others.as_slice() {
            _ if !self.is_partial => String::new(),
            [] => format!("postern itself stays in {library}; `postern uninstall` removes it too"),
            others => format!("postern itself stays in {library}, for the plugins in {}", others.join(" and ")),
        }
    }

    fn carry_out(self) -> Result<()> {
        let mut count = 0;
        for bin in &self.bins {
            count += self.clear(&self.place.real(bin))?;
        }
        let bins: Vec<_> = self.bins.iter().map(|bin| self.place.real(bin).display().to_string()).collect();
        let (bins, library) = (bins.join(" and "), self.layout.directory());
        self.undivert()?;
        if self.is_partial {
            for bin in &self.bins {
                if library.is_dir() {
                    self.layout.forget_bin(bin)?;
                }
                self.give_back_own(bin);
            }
            let count = output::count(count, "file of a plugin is", "files of plugins are");
            return output::text(&format!("{count} removed from {bins}; {}", self.kept()));
        }
        // An ADD may have come while the operator was asked.
        let is_needed = || self.place.destdir.is_empty() && records::are_needed();
        let late = if self.kept_plugins.is_empty() && is_needed() { kept::added(&self.layout) } else { Vec::new() };
        kept::keep(&self.layout, if late.is_empty() { &self.kept_plugins } else { &late })?;
        let made = self.layout.made();
        let command = self.place.real(&self.place.command());
        if fs::read_link(&command).is_ok_and(|target| are_same(&target, &self.host)) {
            files::remove_all(&command)?;
        }
        units::remove(&self.place)?;
        for part in self.layout.parts() {
            files::remove_all(&part)?;
        }
        // CNI bin directories inside the installation go first. The installation's directory follows if it has no other
        // files.
        self.bins.iter().for_each(|bin| self.give_back_own(bin));
        let _ = fs::remove_dir(library);
        // A package manager removes its own bundle. A container's mount point stays.
        let is_foreign = |entry: fs::DirEntry| entry.file_name() != BUNDLE;
        if fs::read_dir(library).into_iter().flatten().flatten().any(is_foreign) {
            output::say(format!("{} has files that were not installed, and stays", library.display()));
        }
        give_back(&self.place, made);
        output::text(&format!("postern is removed from {}, and its plugins from {bins}", library.display()))?;
        match &self.other_host {
            _ if self.is_last => records::forget(),
            Some(host) => output::text(&format!("records stay: plugins' files start {}", host.display())),
            None => Ok(()),
        }
    }

    /// Takes the diversions away that an installation made for the files of these directories.
    fn undivert(&self) -> Result<()> {
        let is_meant = |file: &PathBuf| file.parent().is_some_and(|bin| self.bins.contains(bin));
        let diversions = Diversions::new(&self.place.destdir, None);
        for file in self.layout.diverted().into_iter().filter(is_meant) {
            match diversions.remove(&file) {
                Ok(()) => self.layout.forget_diverted(&file)?,
                Err(error) => output::say(format!("{} stays diverted: {error:#}", file.display())),
            }
        }
        Ok(())
    }

    /// Removes an empty CNI bin directory inside the installation's own directory.
    fn give_back_own(&self, bin: &Path) {
        let bin = self.place.real(bin);
        if bin.starts_with(self.layout.directory()) {
            let _ = fs::remove_dir(&bin);
        }
    }

    /// Removes the plugins' files that belong to the host executable from a CNI bin directory, and puts the kept files
    /// back. Returns the number of removed files.
    fn clear(&self, bin: &Path) -> Result<usize> {
        for entry in fs::read_dir(bin).into_iter().flatten() {
            let path = entry.with_context(|| bin.display().to_string())?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // An installation was killed before it gave this file its name.
            if name.starts_with('.') && name.ends_with(files::NEW) {
                files::remove_all(&path)?;
            }
        }
        // All files are found before the first removal changes the directory.
        let files: Vec<_> = files_in(bin, &self.host).collect();
        files.iter().try_for_each(|path| bin_dir::take_back(path))?;
        for plugin in &self.plugins {
            let path = bin.join(plugin);
            let kept = bin_dir::kept(&path);
            match (path.symlink_metadata().is_ok(), kept.symlink_metadata().is_ok()) {
                (false, true) => bin_dir::take_back(&path)?,
                (true, true) => output::say(format!(
                    "{} is not Postern's, and stays; the earlier file stays as {}",
                    path.display(),
                    kept.display()
                )),
                (_, false) => {}
            }
        }
        Ok(files.len())
    }
}

/// Returns the plugins' files in a CNI bin directory that belong to this host executable.
fn files_in(bin: &Path, host: &Path) -> impl Iterator<Item = PathBuf> {
    let library = host.parent().unwrap_or(host).to_owned();
    let (bin, host) = (bin.to_owned(), host.to_owned());
    let entries = fs::read_dir(&bin).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(move |path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        !bin_dir::is_reserved(&name)
            && match Found::at(path) {
                Found::File(file) => are_same(&file.host, &host),
                Found::Link(target) => target == host || leads_into(path, &host),
                // A copy stays if it finds another catalog.
                Found::Copy => !bin_dir::copies_work_without(&library, &bin),
                Found::Nothing | Found::Foreign | Found::Directory => false,
            }
    })
}

/// Removes the directories that installations have made, if they are empty, the deepest first.
fn give_back(place: &InstallPaths, mut made: Vec<PathBuf>) {
    made.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    // The list in an image's root is not of this node.
    for path in made.iter().filter(|path| place.keep_below(path).is_ok()) {
        let _ = fs::remove_dir(place.real(path));
    }
}

fn has_parts(layout: &InstallLayout) -> bool {
    layout.parts().any(|part| part.symlink_metadata().is_ok())
}

/// Returns the host executables, other than `host`, that plugins' files in a CNI bin directory start.
fn started_in(bin: &Path, host: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let host = host.to_owned();
    let entries = fs::read_dir(bin).into_iter().flatten().flatten().map(|entry| Found::at(&entry.path()));
    let hosts = entries.filter_map(|found| if let Found::File(file) = found { Some(file.host) } else { None });
    hosts.filter(move |other| !are_same(other, &host) && other.exists())
}

/// True if a link leads to this host executable, or to the executable of one of its versions.
fn leads_into(link: &Path, host: &Path) -> bool {
    let library = host.parent().unwrap_or(host);
    fs::canonicalize(link).is_ok_and(|real| {
        fs::canonicalize(host).is_ok_and(|host| host == real) || real.starts_with(library.join(VERSIONS))
    })
}
