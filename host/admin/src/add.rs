//! `postern add`: compiles a plugin ahead of time, so that nothing is compiled while a runtime waits.

use crate::component::{Component, wasi_extent};
use crate::install::bin_dir::{self, Placement};
use crate::install::files;
use crate::install::layout::InstallLayout;
use crate::output;
use crate::own_version;
use crate::subject;
use crate::versions::{self, Answer};
use anyhow::{Context, Result, bail, ensure};
use postern_gate::catalog::{self, Manifest, Names, WasiExtent};
use postern_gate::{PROGRAM, places, policies};
use postern_policy::{Form, Policy};
use postern_sandbox::compile_process::Contents;
use postern_sandbox::engine;
use std::path::{Path, PathBuf};

/// The options of `postern add`.
#[derive(Debug)]
pub struct Options {
    /// The component's file. Without a policy, an installed plugin's name.
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

/// Compiles a component and places code, manifest, policy and file.
fn component(file: &Path, policy: &Path, options: &Options) -> Result<()> {
    let name = match &options.name {
        Some(name) => name.clone(),
        None => file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default(),
    };
    ensure!(
        subject::is_name(&name),
        "\"{name}\" is no name for a plugin: a plugin's name has only letters, digits, `-`, `_` and `.`, and is not the \
         name of one of Postern's own files; give another name with --name"
    );
    let text = std::fs::read_to_string(policy).with_context(|| format!("policy {}", policy.display()))?;
    if let Some(mode) = files::writable_by_others(policy) {
        output::say(format!(
            "policy {} can be written by others than its owner (mode {mode:o}): its present text is installed, and \
             `postern inspect {name}` shows it",
            policy.display()
        ));
    }
    let granted = Policy::parse(&text, &policy.display().to_string()).map_err(anyhow::Error::msg)?;
    let component = Component::open(file)?;
    // The policy's pin (`digest`) is compared before any part of the component is parsed. The compiler comes last,
    // because the component may exploit a fault of this large program.
    catalog::check_pin(granted.digest(), &component.digest, &name, policy).map_err(anyhow::Error::msg)?;
    let layout = InstallLayout::own()?;
    let catalog = match &options.catalog {
        Some(catalog) => std::path::absolute(catalog).with_context(|| format!("catalog {}", catalog.display()))?,
        None => places::catalog().map_err(anyhow::Error::msg)?,
    };
    if let Some(bin) = &options.bin {
        let host = host(&layout)?;
        Placement::check(bin, &host, &name)?;
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
    let Contents { imports, version } = component.contents()?;
    check_grants(&granted, &imports)?;
    places::trust(files::nearest(&catalog)).map_err(anyhow::Error::msg)?;
    let cwasm = component.compile()?;
    let wasi = wasi_extent(&imports);
    let own = std::env::current_exe()?;
    let program = (wasi == WasiExtent::Whole).then(|| own.with_file_name(PROGRAM));
    let answer = versions::ask(&name, &cwasm, program.as_deref(), granted.limits())
        .with_context(|| format!("{}: the component's answer to VERSION", file.display()))?;
    let (versions, unknown) = named(answer, &granted, file)?;
    let digest = component.digest;
    let manifest = Manifest {
        plugin: name.clone(),
        digest: digest.clone(),
        code: catalog::sha256(&cwasm),
        size: cwasm.len() as u64,
        engine: engine::fingerprint(),
        wasi,
        imports: Names::List(imports),
        versions,
        policy: Form::of(&text),
        version: own_version(version.as_deref(), &name, &digest, &catalog, options),
        postern: env!("CARGO_PKG_VERSION").to_owned(),
    };
    // If the catalog can't be replaced at one instant, the code is written last. Before the code is written, a new
    // plugin isn't run, and the code of an old plugin doesn't fit the new manifest. So no code ever runs under a policy
    // that grants more than its own policy.
    let parts = [
        (format!("{name}.json"), serde_json::to_vec_pretty(&manifest)?),
        (format!("{name}.toml"), text.into_bytes()),
        (format!("{name}.cwasm"), cwasm),
    ];
    let placement = options.bin.as_ref().map(|bin| Placement::prepare(bin, &host(&layout)?, &name)).transpose()?;
    put(&layout, &catalog, &parts)?;
    let kept = match (placement, &options.bin) {
        (Some(placement), Some(bin)) => place(placement, &layout, bin)?,
        _ => None,
    };
    let supported = versions::supported(&granted, manifest.versions.as_deref());
    Report { unknown_versions: unknown, ..report(&manifest, supported, &catalog, options, kept) }.print(options.json)
}

/// Returns the plugin's own version. The build marks the plugins that come with Postern. The mark stays when a user
/// adds the component of a shipped plugin again.
fn own_version(said: Option<&str>, name: &str, digest: &str, catalog: &Path, options: &Options) -> Option<String> {
    let before = || Manifest::read(catalog, name).ok().filter(|before| before.digest == digest)?.version;
    if options.shipped || before().is_some_and(|version| own_version::is_shipped(&version)) {
        return Some(own_version::shipped());
    }
    let read = said.map(own_version::read).transpose();
    let version = read.unwrap_or_else(|reason| {
        output::say(format!(
            "{name}: the component {reason}; programs that ask for a version read \"version unknown\""
        ));
        None
    });
    if is_shipped(name) {
        output::say(format!(
            "{name}: this component says its own version now ({}), and no longer {shipped}: programs that ask for a \
             native plugin's version, as Nomad and nerdctl do, may refuse the plugin; `--shipped` keeps {shipped}, for a \
             component built from Postern's own source",
            version.as_deref().unwrap_or("none"),
            shipped = own_version::shipped()
        ));
    }
    version
}

/// True if a plugin of this name comes with Postern.
fn is_shipped(name: &str) -> bool {
    env!("POSTERN_SHIPPED").split(' ').any(|shipped| shipped == name)
}

/// Returns the versions for the manifest, and the versions that this host doesn't know.
fn named(answer: Answer, policy: &Policy, file: &Path) -> Result<(Option<Vec<String>>, Vec<String>)> {
    match answer {
        Answer::Versions(versions, unknown) => {
            let own = versions::texts(&versions);
            ensure!(
                versions::supported(policy, Some(&own)).is_some_and(|versions| !versions.is_empty()),
                "{}: the component supports CNI {}, and its policy allows none of them: name at least one in the \
                 policy's `versions`",
                file.display(),
                own.join(", ")
            );
            Ok((Some(own), unknown))
        }
        Answer::None(_) if policy.versions().is_some() => Ok((None, Vec::new())),
        Answer::None(why) => bail!(
            "{}: the component does not tell its CNI versions (VERSION): {why}; it has to answer VERSION as the \
             specification says, or its policy has to name them: versions = [\"1.0.0\", \"1.1.0\"]",
            file.display()
        ),
    }
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
    let catalog = places::catalog().map_err(anyhow::Error::msg)?;
    places::trust(&catalog).map_err(anyhow::Error::msg)?;
    let manifest = Manifest::read(&catalog, name).map_err(anyhow::Error::msg)?;
    bin_dir::judge(bin);
    let kept = place(Placement::prepare(bin, &host(&layout)?, name)?, &layout, bin)?;
    let policy = policies::load_with(None, &catalog, name).ok();
    let versions = policy.and_then(|policy| versions::supported(&policy, manifest.versions.as_deref()));
    report(&manifest, versions, &catalog, options, kept).print(options.json)
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
    real(catalog).is_some_and(|catalog| {
        real(&own).as_ref() == Some(&catalog) || taken().and_then(|taken| real(&taken)) == Some(catalog)
    })
}

/// Returns the executable that plugins' files start.
fn host(layout: &InstallLayout) -> Result<PathBuf> {
    let host = layout.host();
    ensure!(
        host.is_file(),
        "there is no {}, which a plugin's file has to start; `make install` puts one there",
        host.display()
    );
    Ok(host)
}

/// Places a plugin's file. Returns the new path of a foreign file that had the plugin's name.
fn place(placement: Placement, layout: &InstallLayout, bin: &Path) -> Result<Option<PathBuf>> {
    let kept = placement.commit()?;
    layout.note_bin(&bin.canonicalize().with_context(|| bin.display().to_string())?)?;
    Ok(kept)
}

/// Puts a plugin's files into a catalog at one instant, under its lock.
fn put(layout: &InstallLayout, catalog: &Path, files: &[(String, Vec<u8>)]) -> Result<()> {
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
    files::replace_within(&real, files)
}

/// Compares policy and imports. A grant without an import is probably a mistake.
fn check_grants(policy: &Policy, imports: &[String]) -> Result<()> {
    let interface = |import: &String| {
        let name = import.strip_prefix("postern:cni/")?;
        name.split_once('@').map(|(interface, _)| interface.to_owned())
    };
    let imported: Vec<String> = imports.iter().filter_map(interface).collect();
    for capability in policy.capabilities() {
        if !imported.iter().any(|name| name == capability.name()) {
            bail!(
                "the policy grants \"{capability}\", which the component does not import: take [grant.{capability}] out"
            );
        }
    }
    Ok(())
}
