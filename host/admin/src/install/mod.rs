//! `postern install`, `upgrade`, `rollback` and `uninstall`. All checks come before the first file is placed. The files
//! that runs use change at one instant: only the link `current` of `layout.rs` changes.

pub mod bin_dir;
mod bundle;
mod divert;
mod extras;
pub mod files;
pub mod kept;
pub mod layout;
pub mod line;
mod paths;
mod records;
mod remove;
mod switch;
mod units;
mod watch;

pub use bundle::{COMPONENT, ENDINGS};
pub use remove::{Uninstall, uninstall};
pub use switch::{Rollback, rollback};
pub use watch::{Install, install};

use crate::lists::CNI_BIN;
use crate::output;
use anyhow::{Context, Result, bail, ensure};
use bin_dir::{Found, Placement};
use bundle::Bundle;
use divert::Diversions;
use extras::Extras;
use layout::{CURRENT, DHCP_SERVICE, InstallLayout, OPTIONAL, SCHEMAS, VERSIONS, is_package, package_of};
use line::line;
use nix::unistd::{AccessFlags, access};
use paths::InstallPaths;
use postern_gate::catalogs::ADDED;
use postern_gate::places::{self, INSTALLED};
use postern_gate::policies::node_directories;
use postern_sandbox::engine;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use switch::{switch, tidy};

/// The means of an installation.
const MEANS: [&str; 6] = ["source", "archive", "deb", "rpm", "image", "sysext"];

/// The options of `postern install` and `postern upgrade`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The build or bundle: a directory with the programs of Postern and postern.d [default: the directory of this
    /// program].
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    #[command(flatten)]
    place: InstallPaths,
    /// A CNI bin directory that gets the plugins' files; several are possible [default: the first of
    /// node.toml's plugin-directories, else /opt/cni/bin; for `upgrade`: the directories that have such files].
    #[arg(long, alias = "cni-bin", value_name = "DIR")]
    bin_dir: Vec<PathBuf>,
    /// Plugins, separated by commas [default: all plugins of the build; for `upgrade`: the installed plugins].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    plugins: Vec<String>,
    /// Divert the plugins' names by dpkg: another package that brings a file of such a name places it as NAME.native.
    #[arg(long)]
    divert: bool,
    /// The means of this installation, for `postern doctor`. Packages are linked and not copied.
    #[arg(long, value_name = "NAME", hide = true, value_parser = MEANS)]
    by: Option<String>,
    /// Optional programs that the build lacks may go from the installation: a package's script calls.
    #[arg(long, hide = true)]
    without_missing: bool,
    /// Show the changes, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// As --plugins.
    #[arg(value_name = "PLUGIN", hide = true)]
    names: Vec<String>,
}

/// An installation, before it is carried out.
struct Installation<'a> {
    place: &'a InstallPaths,
    build: PathBuf,
    /// The CNI bin directories, without DESTDIR.
    bins: Vec<PathBuf>,
    plugins: Vec<String>,
    /// The executable that plugins' files start, without DESTDIR.
    host: PathBuf,
    layout: InstallLayout,
    /// The files of plugins in CNI bin directories are only renewed, and no file is added.
    is_upgrade: bool,
    means: String,
}

/// Returns the installation of a build. Changes nothing.
fn installation(options: &Options) -> Result<Installation<'_>> {
    let build = build(options)?;
    let plugins: Vec<String> = options.plugins.iter().chain(&options.names).cloned().collect();
    ensure!(
        plugins.iter().all(|plugin| !plugin.is_empty()),
        "--plugins has an empty name: without the option, all are installed"
    );
    let plugins = if plugins.is_empty() { bundle::plugins_of(&build)? } else { plugins };
    let bins = if options.bin_dir.is_empty() { vec![usual_bin(options)?] } else { options.bin_dir.clone() };
    Installation::of(options, build, bins, plugins, false)
}

/// Installs a build in place of an earlier version: the same plugins, in the same CNI bin directories.
///
/// # Errors
/// As [`Installation::carry_out`], or there is no earlier version.
pub fn upgrade(options: &Options) -> Result<()> {
    let build = build(options)?;
    let layout = InstallLayout::at(options.place.real(&options.place.library()));
    let library = layout.directory().display();
    ensure!(
        layout.host().symlink_metadata().is_ok(),
        "{library} has no installation; --prefix names another place, and `postern install` makes a new installation"
    );
    let mut bins = if options.bin_dir.is_empty() { layout.bins() } else { options.bin_dir.clone() };
    if bins.is_empty() {
        // An older installation has no list of directories.
        bins.push(PathBuf::from(CNI_BIN));
    }
    let named: Vec<String> = options.plugins.iter().chain(&options.names).cloned().collect();
    let in_build = bundle::plugins_of(&build)?;
    let installed = bundle::plugins_of(layout.directory())
        .with_context(|| format!("the installation {library} has no plugins: `postern install` makes it anew"))?;
    let same = || in_build.into_iter().filter(|plugin| installed.contains(plugin)).collect();
    let plugins: Vec<String> = if named.is_empty() { same() } else { named };
    ensure!(!plugins.is_empty(), "{} has none of the plugins in {library}", build.display());
    if layout.has_version(&build) {
        output::say(format!(
            "{} is the installed version; a new version is installed by its own program: `DIR/postern-admin upgrade`",
            build.display()
        ));
    }
    let installation = Installation::of(options, build, bins, plugins, true)?;
    Installation { is_upgrade: options.bin_dir.is_empty(), ..installation }.carry_out(options)
}

/// Returns the CNI bin directory that is searched first. An image's root has settings of its own.
fn usual_bin(options: &Options) -> Result<PathBuf> {
    let usual = || PathBuf::from(CNI_BIN);
    if !options.place.destdir.is_empty() {
        return Ok(usual());
    }
    let (_, plugins) = node_directories().map_err(anyhow::Error::msg)?;
    Ok(plugins.into_iter().next().map_or_else(usual, PathBuf::from))
}

/// Returns the directory of the build.
fn build(options: &Options) -> Result<PathBuf> {
    let own = || -> Result<PathBuf> {
        let own = std::env::current_exe()?;
        Ok(own.parent().unwrap_or(Path::new("/")).to_owned())
    };
    let Some(from) = options.from.clone() else { return own() };
    // The program that installs must be the build's own: it knows the engine and the version of this build.
    let program = from.join("postern-admin");
    ensure!(
        !program.is_file() || files::are_same(&program, &std::env::current_exe()?),
        "{} is another version than this program: call {} instead",
        from.display(),
        program.display()
    );
    Ok(from)
}

impl<'a> Installation<'a> {
    fn of(
        options: &'a Options,
        build: PathBuf,
        bins: Vec<PathBuf>,
        plugins: Vec<String>,
        is_upgrade: bool,
    ) -> Result<Self> {
        let place = &options.place;
        place.check(&bins)?;
        let mut seen = BTreeSet::new();
        // Two names of one directory would place each file twice.
        let is_new = |bin: &PathBuf| seen.insert(place.real(bin).canonicalize().unwrap_or_else(|_| place.real(bin)));
        let bins: Vec<PathBuf> = bins.into_iter().filter(is_new).collect();
        let host = InstallLayout::at(place.library()).host();
        let layout = InstallLayout::at(place.real(&place.library()));
        // An installation of its own version only repairs.
        let noted = || layout.means().filter(|_| is_upgrade || layout.has_version(&build));
        let means = options.by.clone().or_else(noted).unwrap_or_else(|| "source".to_owned());
        Ok(Self { place, build, bins, plugins, host, layout, is_upgrade, means })
    }

    /// Carries out the installation.
    ///
    /// # Errors
    /// A check failed, and nothing was placed. Or the disk is full, and the earlier version continues to work.
    fn carry_out(&self, options: &Options) -> Result<()> {
        let Self { place, layout, plugins, host, .. } = self;
        let mut bundle = Bundle::read(&self.build, plugins)?;
        if let Err(reason) = bundle.trust() {
            let build = self.build.display();
            // A package or an image has only files of root. A user may have unpacked an archive, or built the sources.
            ensure!(
                options.by.as_deref().is_none_or(|means| ["source", "archive"].contains(&means)),
                "{reason}. Nothing of {build} was installed"
            );
            output::say(format!("{reason}. The present files of {build} are installed"));
        }
        self.check()?;
        if !options.without_missing {
            self.check_programs(&bundle)?;
        }
        let diversions = Diversions::new(&place.destdir, Some(&self.means));
        let to_divert = match options.divert {
            true => diversions.missing(self.files().map(|(bin, plugin)| bin.join(plugin)))?,
            false => Vec::new(),
        };
        let extras = Extras::of(place);
        extras.say();
        if options.dry_run {
            let again = self.take_over(&mut bundle)?;
            return self.show(&bundle, &again, &to_divert);
        }
        // In a release, each of these programs is a package of its own.
        let is_source = self.means == "source";
        for program in OPTIONAL.into_iter().filter(|program| is_source && !bundle.has(program)) {
            output::say(format!("this build has no {program}, and neither has the installation then"));
        }
        let made = place.to_make(self.bins.iter().map(PathBuf::as_path).chain(extras.directories()));
        files::make_directory(layout.directory())?;
        let bins: Vec<PathBuf> = self.bins.iter().map(|bin| place.real(bin)).collect();
        bins.iter().try_for_each(|bin| files::make_directory(bin))?;
        let _lock = files::lock(layout.directory())?;
        let _lock_of_added = self.takes_kept().then(|| files::lock(Path::new(places::LIBRARY))).transpose()?;
        layout.note_made(&made)?;
        for (bin, plugin) in self.files() {
            Placement::check(&place.real(bin), host, plugin)?;
        }
        let taken = if self.takes_kept() { kept::to_take(layout, &self.build) } else { Vec::new() };
        let again = self.take_over(&mut bundle)?;
        let has_units = bundle.has(DHCP_SERVICE) && extras.are_units_there();
        if to_divert.is_empty() && self.is_done(&bundle, &extras) {
            tidy(layout)?;
            return self.say_installed(&bundle.id(), has_units, "; nothing had to be done");
        }
        let versions = layout.directory().join(VERSIONS);
        files::make_directory(&versions)?;
        let version = bundle.write(&versions, is_package(&self.means))?;
        let placements = self.files().map(|(bin, plugin)| Placement::prepare(&place.real(bin), host, plugin));
        let placements = placements.collect::<Result<Vec<_>>>()?;
        // The target of the link must exist even after a power cut.
        nix::unistd::syncfs(File::open(&versions)?).with_context(|| versions.display().to_string())?;
        let is_first =
            || layout.host().symlink_metadata().is_err() && !INSTALLED.iter().any(|at| Path::new(at).exists());
        if place.destdir.is_empty() && is_first() {
            records::put_back()?;
        }
        layout.note_diverted(&to_divert)?;
        diversions.add(&to_divert)?;
        switch(place, layout, &version)?;
        let kept = self.finish(&extras, bundle.has(DHCP_SERVICE), placements).with_context(|| {
            format!(
                "new runs use {version}, but the installation is not complete: repair the cause, then install again"
            )
        })?;
        kept::forget(layout, &taken)?;
        for plugin in again {
            output::text(&format!("plugin \"{plugin}\" was compiled again, for {}", engine::fingerprint()))?;
        }
        for kept in kept.into_iter().flatten() {
            output::text(&format!("the earlier file is kept as {}", kept.display()))?;
        }
        self.say_installed(&version, has_units, "")
    }

    /// Adds the plugins to a bundle that the operator added to the present installation, or that an earlier removal kept.
    /// Returns the plugins that were compiled again.
    fn take_over(&self, bundle: &mut Bundle) -> Result<Vec<String>> {
        let mut again = bundle.take_over(self.place, &self.layout.catalog(), &self.build)?;
        if self.takes_kept() {
            again.extend(bundle.take_over(self.place, Path::new(ADDED), &self.build)?);
        }
        Ok(again)
    }

    /// True if this installation takes plugins over from the operator's catalog. A user's installation can't, and another
    /// installation of this node may use that catalog.
    fn takes_kept(&self) -> bool {
        let is_writable = || access(ADDED, AccessFlags::W_OK).is_ok();
        self.place.destdir.is_empty() && is_writable() && !self.place.has_other()
    }

    /// Says where the installation is, and what the DHCP service needs.
    fn say_installed(&self, version: &str, has_units: bool, rest: &str) -> Result<()> {
        let bins: Vec<String> = self.bins.iter().map(|bin| self.place.real(bin).display().to_string()).collect();
        output::text(&format!(
            "postern {version} is installed in {}, its plugins in {}{rest}",
            self.layout.directory().display(),
            bins.join(" and ")
        ))?;
        if has_units {
            output::text("networks with `dhcp` need the DHCP service: systemctl enable --now postern-dhcp.service")?;
        }
        Ok(())
    }

    /// Places the objects beside the version that new runs use already. Returns the kept files.
    fn finish(
        &self,
        extras: &Extras<'_>,
        has_service: bool,
        placements: Vec<Placement>,
    ) -> Result<Vec<Option<PathBuf>>> {
        let layout = &self.layout;
        extras.place(&self.host, has_service)?;
        self.bins.iter().try_for_each(|bin| layout.note_bin(bin))?;
        layout.note_means(&self.means)?;
        self.note_placed()?;
        let kept = placements.into_iter().map(Placement::commit).collect::<Result<Vec<_>>>()?;
        tidy(layout)?;
        Ok(kept)
    }

    /// Refuses a build that lacks an optional program of the present version: a new base without its other archives.
    fn check_programs(&self, bundle: &Bundle) -> Result<()> {
        let present = self.layout.directory().join(CURRENT);
        let lost: Vec<&str> =
            OPTIONAL.into_iter().filter(|program| !bundle.has(program) && present.join(program).is_file()).collect();
        let packages: Vec<&str> = lost.iter().map(|program| package_of(program)).collect();
        ensure!(
            lost.is_empty(),
            "{} has no {}, and the installation would lose it: add {} of the same version to the build, then install \
             again. Or let the program go: --without-missing",
            self.build.display(),
            lost.join(", "),
            packages.join(", ")
        );
        Ok(())
    }

    /// Returns the CNI bin directory and the plugin of each file to place. An upgrade renews Postern's own files: a native
    /// plugin that the operator has put back stays.
    fn files(&self) -> impl Iterator<Item = (&Path, &str)> {
        let files =
            self.bins.iter().flat_map(|bin| self.plugins.iter().map(move |plugin| (bin.as_path(), plugin.as_str())));
        files.filter(|(bin, plugin)| !self.is_upgrade || Found::at(&self.place.real(bin).join(plugin)).is_ours(plugin))
    }

    /// Notes the plugins' files. A file that is gone from one of these directories, and that this installation does not
    /// place, is meant to be gone. An upgrade changes nothing there.
    fn note_placed(&self) -> Result<()> {
        let files: Vec<PathBuf> = self.files().map(|(bin, plugin)| bin.join(plugin)).collect();
        self.layout.note_placed(&files, |file| self.stays_noted(file))
    }

    /// True if the note of a plugin's file stays.
    fn stays_noted(&self, file: &Path) -> bool {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let is_ours = || Found::at(&self.place.real(file)).is_ours(&name);
        let is_meant = self.bins.iter().any(|bin| file.parent() == Some(bin));
        self.is_upgrade || !is_meant || is_ours()
    }

    /// True if new runs use exactly this bundle, and each object of the installation is in its place and noted.
    fn is_done(&self, bundle: &Bundle, extras: &Extras<'_>) -> bool {
        let Self { place, layout, host, .. } = self;
        let noted = layout.placed();
        let is_placed = |bin: &Path, plugin: &str| bin_dir::is_placed(&place.real(bin).join(plugin), host, plugin);
        switch::current(layout).is_some_and(|current| bundle.is_at(&current))
            && self.files().all(|(bin, plugin)| is_placed(bin, plugin) && noted.contains(&bin.join(plugin)))
            && noted.iter().all(|file| self.stays_noted(file))
            && extras.are_placed(host, bundle.has(DHCP_SERVICE))
            && self.bins.iter().all(|bin| layout.bins().contains(bin))
            && layout.means().is_some_and(|noted| noted == self.means)
    }

    /// Prints the changes that this installation would make.
    fn show(&self, bundle: &Bundle, again: &[String], to_divert: &[PathBuf]) -> Result<()> {
        output::text(&format!("postern {} would be installed in {}", bundle.id(), self.layout.directory().display()))?;
        for directory in &self.bins {
            let bin = self.place.real(directory);
            let plugins: Vec<&str> = self.files().filter(|(at, _)| at == directory).map(|(_, plugin)| plugin).collect();
            let is_foreign = |plugin: &&&str| Found::at(&bin.join(plugin)) == Found::Foreign;
            let foreign: Vec<&str> = plugins.iter().filter(is_foreign).copied().collect();
            let files = output::count(plugins.len(), "file of a plugin", "files of plugins");
            let kept = match foreign.as_slice() {
                [] => String::new(),
                foreign => format!("; these earlier files would be kept as NAME.native: {}", foreign.join(", ")),
            };
            output::text(&format!("{files} would be placed in {}{kept}", bin.display()))?;
        }
        if !to_divert.is_empty() {
            output::text(&format!("{} would be diverted", output::count(to_divert.len(), "name", "names")))?;
        }
        for plugin in again {
            output::text(&format!("plugin \"{plugin}\" would be compiled again, for {}", engine::fingerprint()))?;
        }
        output::text("nothing was changed")
    }

    /// Checks all conditions that can be known before anything is changed.
    fn check(&self) -> Result<()> {
        let Self { place, layout, host, .. } = self;
        for plugin in &self.plugins {
            line(host, plugin)?;
            for bin in &self.bins {
                let path = place.real(&bin.join(plugin));
                ensure!(Found::at(&path) != Found::Directory, "{} is a directory; take it away", path.display());
            }
        }
        // A missing CNI bin directory is made.
        for (bin, plugin) in self.files().map(|(bin, plugin)| (place.real(bin), plugin)) {
            if bin.symlink_metadata().is_ok() {
                Placement::check(&bin, host, plugin)?;
            }
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
        // The directories above an image's root are not the directories on the node.
        if place.destdir.is_empty() {
            places::trust(files::nearest(layout.directory())).map_err(anyhow::Error::msg)?;
            self.bins.iter().for_each(|bin| bin_dir::judge(bin));
        }
        Ok(())
    }
}
