//! `postern add`: compiles a plugin ahead of time, so that nothing is compiled while a runtime waits.

use crate::compile::{self, PluginFiles, Source};
use crate::doctor::installer;
use crate::install::bin_dir::{self, Placement};
use crate::install::files;
use crate::install::layout::InstallLayout;
use crate::install::{COMPONENT, ENDINGS};
use crate::output;
use crate::subject;
use crate::versions;
use anyhow::{Context, Result, bail, ensure};
use postern_gate::catalog::{Manifest, WasiExtent};
use postern_gate::catalogs::{self, ADDED, Catalogs};
use postern_gate::{PROGRAM, places, policies};
use postern_policy::Policy;
use std::env::consts::ARCH;
use std::path::{Path, PathBuf};

/// The options of `postern add`.
#[derive(Debug)]
pub struct Options {
    /// The component; without a policy, the manifest of a bundle or the name of an installed plugin.
    pub target: String,
    pub policy: Option<PathBuf>,
    pub name: Option<String>,
    pub catalog: Option<PathBuf>,
    pub bin: Option<PathBuf>,
    /// True if the plugin comes with this Postern.
    pub shipped: bool,
    /// Print one JSON object.
    pub json: bool,
}

/// The object that `--json` prints. Keys are only ever added.
#[derive(serde::Serialize)]
struct Report<'a> {
    plugin: &'a str,
    /// SHA-256 of the component, hexadecimal.
    digest: &'a str,
    imports: &'a [String],
    /// The plugin's own version, which it prints without CNI_COMMAND; `null` if its component has none.
    version: Option<&'a str>,
    /// The CNI versions that the plugin supports under its policy; `null` if neither component nor policy names any.
    versions: Option<Vec<String>>,
    /// Versions that the plugin names, but this host doesn't know: they are left out.
    unknown_versions: Vec<String>,
    /// The engine that the code was compiled for.
    engine: &'a str,
    /// Size of the code in bytes.
    size: u64,
    /// The directory of code and policy.
    catalog: &'a Path,
    /// The plugin's file in the CNI bin directory; `null` if none was placed.
    file: Option<PathBuf>,
    /// The new path of a foreign file that had the plugin's name; `null` if there was none.
    kept: Option<PathBuf>,
}

impl Report<'_> {
    fn print(&self, json: bool) -> Result<()> {
        if json {
            return output::json(self);
        }
        let mut lines =
            vec![format!("{}: {} imports, component sha256:{}", self.plugin, self.imports.len(), self.digest)];
        lines.push(match self.version {
            Some(version) => format!("{}: version {version}", self.plugin),
            None => format!("{}: version unknown: its component says none", self.plugin),
        });
        if let Some(versions) = &self.versions {
            lines.push(format!("{}: CNI {}", self.plugin, versions.join(", ")));
        }
        if !self.unknown_versions.is_empty() {
            let unknown = self.unknown_versions.join(", ");
            lines.push(format!(
                "{}: CNI {unknown}, which the component names too, is unknown to this host",
                self.plugin
            ));
        }
        let (engine, size) = (self.engine, self.size);
        lines.push(format!(
            "{}: compiled for {engine}, {size} bytes, with its policy in {}",
            self.plugin,
            self.catalog.display()
        ));
        lines.extend(self.file.as_ref().map(|file| format!("{}: placed as {}", self.plugin, file.display())));
        lines.extend(self.kept.as_ref().map(|kept| format!("the earlier file is kept as {}", kept.display())));
        output::text(&lines.join("\n"))
    }
}

/// Installs a plugin from its component, or places an installed plugin's file in one more CNI bin directory.
pub fn run(options: &Options) -> Result<()> {
    match &options.policy {
        _ if options.target.ends_with(".json") => bundle(Path::new(&options.target), options),
        Some(policy) => component(Path::new(&options.target), policy, options),
        None if subject::is_file(&options.target) => {
            bail!("{}: a plugin without a policy is not run; give one with --policy", options.target)
        }
        None => {
            let Some(bin) = &options.bin else {
                bail!(
                    "\"{}\" needs --bin DIR, where an installed plugin's file is to be placed; a component file needs --policy",
                    options.target
                )
            };
            installed(&options.target, bin, options)
        }
    }
}

/// Compiles a component and places its files.
fn component(file: &Path, policy: &Path, options: &Options) -> Result<()> {
    let name = compile::name_of(file, options.name.as_deref())?;
    let (layout, catalog) = destination(&name, options)?;
    let source = Source { file, policy, name: &name, catalog: &catalog, shipped: options.shipped };
    put(&source.compile(ARCH)?, &layout, &catalog, options)
}

/// Places the files of a bundle, which was compiled elsewhere. Its code is native code: it is trusted as its owner is.
fn bundle(manifest: &Path, options: &Options) -> Result<()> {
    ensure!(
        options.name.is_none() && options.policy.is_none() && !options.shipped,
        "{} is compiled already, with its name and its policy; leave out --name and --policy",
        manifest.display()
    );
    let directory = manifest.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = subject::stem(manifest);
    ensure!(subject::is_name(&name), "{}: the file's name is no name for a plugin", manifest.display());
    let (layout, catalog) = destination(&name, options)?;
    for ending in ENDINGS {
        // The path is judged as given: the owner of a link decides where the link leads.
        places::trust(&directory.join(format!("{name}.{ending}"))).map_err(anyhow::Error::msg)?;
    }
    let plugin = PluginFiles::read(directory, &name)?;
    plugin.prove(directory, &name).with_context(|| {
        format!("{}: this bundle can't run here; compile it again for this node: `postern compile`", manifest.display())
    })?;
    put(&plugin, &layout, &catalog, options)
}

/// Checks the places of a plugin's files. Returns the layout and the catalog.
fn destination(name: &str, options: &Options) -> Result<(InstallLayout, PathBuf)> {
    let layout = InstallLayout::own()?;
    let catalog = match &options.catalog {
        Some(catalog) => std::path::absolute(catalog).with_context(|| format!("catalog {}", catalog.display()))?,
        None => default_catalog(&layout)?,
    };
    refuse_twice(&catalog, name)?;
    if let Some(bin) = &options.bin {
        let host = host(&layout)?;
        Placement::check(bin, &host, name)?;
        ensure!(
            finds(&layout, &catalog),
            "the file in {} would start {}, which looks for plugins in {}, and not in {}: leave out --catalog, or --bin",
            bin.display(),
            host.display(),
            layout.catalog().display(),
            catalog.display()
        );
        bin_dir::judge(bin);
    }
    places::trust(files::nearest(&catalog)).map_err(anyhow::Error::msg)?;
    if catalog == Path::new(ADDED) {
        catalogs::refuse_noexec(files::nearest(&catalog)).map_err(anyhow::Error::msg)?;
    }
    Ok((layout, catalog))
}

/// Returns the catalog for a new plugin: the installation's own, or the operator's if no command changes the
/// installation.
///
/// # Errors
/// There is no catalog.
pub fn default_catalog(layout: &InstallLayout) -> Result<PathBuf> {
    let catalogs = Catalogs::find().map_err(anyhow::Error::msg)?;
    Ok(if layout.is_fixed() { catalogs.added() } else { catalogs.own() }.to_owned())
}

/// Refuses a plugin whose name the other catalog of this host has: runs look into the installation's own catalog first.
fn refuse_twice(catalog: &Path, name: &str) -> Result<()> {
    let Ok(catalogs) = Catalogs::find() else { return Ok(()) };
    let (own, added) = (catalogs.own(), catalogs.added());
    if catalog == added {
        ensure!(
            !catalogs::has(own, name),
            "plugin \"{name}\" is in {} already, and runs look there first: in {} it would never run; give the component \
             another name (--name)",
            own.display(),
            added.display()
        );
        if added.symlink_metadata().is_ok() {
            catalogs.judge().map_err(anyhow::Error::msg)?;
        }
    } else if catalog == own {
        ensure!(
            !catalogs::has(added, name),
            "plugin \"{name}\" is in {} already, and would not run any more beside one in {}; `postern remove {name}` removes it \
             there, or give the component another name (--name)",
            added.display(),
            own.display()
        );
    }
    Ok(())
}

/// Places the files of a plugin, and says so.
fn put(plugin: &PluginFiles, layout: &InstallLayout, catalog: &Path, options: &Options) -> Result<()> {
    let PluginFiles { manifest, policy, unknown_versions, .. } = plugin;
    let name = &manifest.plugin;
    let program = std::env::current_exe()?.with_file_name(PROGRAM);
    ensure!(
        manifest.wasi == WasiExtent::Small || program.is_file(),
        "plugin \"{name}\" imports all of WASI, and there is no {}, which runs such plugins: install the package {PROGRAM}, or a \
         build that has this program",
        program.display()
    );
    let placement = options.bin.as_ref().map(|bin| Placement::prepare(bin, &host(layout)?, name)).transpose()?;
    // The component of an earlier plugin of this name is not the component of this code.
    put_into(layout, catalog, &plugin.parts()?, &format!("{name}.{COMPONENT}"))?;
    let kept = match (placement, &options.bin) {
        (Some(placement), Some(bin)) => place(placement, layout, bin)?,
        _ => None,
    };
    let policy = Policy::parse(policy, name).map_err(anyhow::Error::msg)?;
    let supported = versions::supported(&policy, manifest.versions.as_deref());
    Report { unknown_versions: unknown_versions.clone(), ..report(manifest, supported, catalog, options, kept) }
        .print(options.json)
}

fn report<'a>(
    manifest: &'a Manifest,
    versions: Option<Vec<String>>,
    catalog: &'a Path,
    options: &Options,
    kept: Option<PathBuf>,
) -> Report<'a> {
    Report {
        versions,
        unknown_versions: Vec::new(),
        plugin: &manifest.plugin,
        digest: &manifest.digest,
        imports: &manifest.imports,
        version: manifest.version.as_deref(),
        engine: &manifest.engine,
        size: manifest.size,
        catalog,
        file: options.bin.as_ref().map(|bin| bin.join(&manifest.plugin)),
        kept,
    }
}

/// Places the file of an installed plugin.
fn installed(name: &str, bin: &Path, options: &Options) -> Result<()> {
    ensure!(
        options.name.is_none() && options.catalog.is_none(),
        "--name and --catalog are for a component, which has to have a --policy"
    );
    ensure!(subject::is_name(name), "\"{name}\" is no name of a plugin");
    let layout = InstallLayout::own()?;
    let catalogs = Catalogs::find().map_err(anyhow::Error::msg)?;
    places::trust(catalogs.own()).map_err(anyhow::Error::msg)?;
    let catalog = catalogs.of(name).map_err(anyhow::Error::msg)?;
    let manifest = Manifest::read(catalog, name).map_err(anyhow::Error::msg)?;
    bin_dir::judge(bin);
    let kept = place(Placement::prepare(bin, &host(&layout)?, name)?, &layout, bin)?;
    let policy = policies::load_with(None, catalog, name).ok();
    let versions = policy.and_then(|policy| versions::supported(&policy, manifest.versions.as_deref()));
    report(&manifest, versions, catalog, options, kept).print(options.json)
}

/// True if the host executable of a layout looks for plugins in this catalog, which need not exist yet.
fn finds(layout: &InstallLayout, catalog: &Path) -> bool {
    let real = |path: &Path| {
        let beside = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
        path.canonicalize().ok().or_else(beside)
    };
    let own = layout.catalog();
    // The host executable takes the catalog beside it. If that catalog is missing, the host executable takes the
    // catalog of an installation, as this program does.
    let taken = || places::catalog().ok().filter(|_| !own.exists());
    catalog == Path::new(ADDED)
        || real(catalog).is_some_and(|catalog| {
            real(&own).as_ref() == Some(&catalog) || taken().and_then(|taken| real(&taken)) == Some(catalog)
        })
}

/// Returns the executable that plugins' files start.
fn host(layout: &InstallLayout) -> Result<PathBuf> {
    let host = layout.host();
    ensure!(
        host.is_file(),
        "there is no {}, which a plugin's file has to start; {} puts one there",
        host.display(),
        installer()
    );
    Ok(host)
}

/// Places a plugin's file. Returns the new path of a foreign file that had the plugin's name.
fn place(placement: Placement, layout: &InstallLayout, bin: &Path) -> Result<Option<PathBuf>> {
    let bin = bin.canonicalize().with_context(|| bin.display().to_string())?;
    let file = bin.join(placement.plugin());
    let kept = placement.commit()?;
    layout.note_bin(&bin)?;
    // The directory of the host executable itself has no list: a build gets plugins there.
    if bin != layout.directory() {
        layout.note_placed(&[file], |_| true)?;
    }
    Ok(kept)
}

/// Puts a plugin's files into a catalog at one instant, under its lock.
fn put_into(layout: &InstallLayout, catalog: &Path, files: &[(String, Vec<u8>)], component: &str) -> Result<()> {
    let is_own = catalog.canonicalize().is_ok_and(|real| real.starts_with(layout.directory()));
    let lock_at = match is_own {
        true => layout.directory().to_owned(),
        false => {
            let parent = catalog.parent().unwrap_or(Path::new("/"));
            files::make_directory(parent)?;
            parent.to_owned()
        }
    };
    let _lock = files::lock(&lock_at)?;
    // By now another version of Postern may be installed.
    let catalog = if is_own { layout.catalog() } else { catalog.to_owned() };
    let real = catalog.canonicalize().unwrap_or(catalog);
    files::replace_within(&real, files, component)
}
