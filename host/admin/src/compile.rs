//! From a component file to the three files of a plugin: code, manifest and policy. `postern add` places them on this
//! node. `postern compile` writes them to a directory, for nodes without a compiler.

use crate::component::{COMPILER, Component, wasi_extent};
use crate::install::COMPONENT;
use crate::install::files::{self, Ready};
use crate::output;
use crate::own_version;
use crate::subject;
use crate::versions::{self, Answer};
use anyhow::{Context, Result, bail, ensure};
use postern_gate::PROGRAM;
use postern_gate::catalog::{self, Manifest, Names, WasiExtent};
use postern_gate::catalogs::Catalogs;
use postern_policy::{Form, Policy};
use postern_sandbox::component_process::Contents;
use postern_sandbox::engine;
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};

/// The files of a plugin, before they are placed.
pub struct PluginFiles {
    pub manifest: Manifest,
    /// Its policy, as TOML.
    pub policy: String,
    /// Its machine code.
    pub code: Vec<u8>,
    /// Its component, if it was compiled here and does not come with Postern: a later version compiles it again.
    pub component: Option<Vec<u8>>,
    /// CNI versions that the plugin names, but this host doesn't know: they are left out of the manifest.
    pub unknown_versions: Vec<String>,
}

/// A component and its policy, before the component is compiled.
pub struct Source<'a> {
    pub file: &'a Path,
    pub policy: &'a Path,
    pub name: &'a str,
    /// The catalog that may have the plugin already.
    pub catalog: &'a Path,
    /// The plugin comes with this Postern.
    pub shipped: bool,
}

impl Source<'_> {
    /// Compiles the component for an architecture (`x86_64`, `aarch64`). All other comparisons come first, because the
    /// component may exploit a fault of the large compiler.
    ///
    /// # Errors
    /// Component and policy don't fit, or the component is refused.
    pub fn compile(&self, architecture: &str) -> Result<PluginFiles> {
        let Self { file, policy: path, name, catalog, .. } = *self;
        let text = fs::read_to_string(path).with_context(|| format!("policy {}", path.display()))?;
        if let Some(mode) = files::writable_by_others(path) {
            output::say(format!(
                "policy {} can be written by others than its owner (mode {mode:o}): its present text is installed, and \
                 `postern inspect {name}` shows it",
                path.display()
            ));
        }
        let policy = Policy::parse(&text, &path.display().to_string()).map_err(anyhow::Error::msg)?;
        let component = Component::open(file)?;
        // The policy's pin (`digest`) is compared before any part of the component is parsed.
        catalog::check_pin(policy.digest(), &component.digest, name, path).map_err(anyhow::Error::msg)?;
        let Contents { imports, version } = component.contents()?;
        check_grants(&policy, &imports)?;
        let wasi = wasi_extent(&imports);
        // Code of another architecture can't be asked here: the same component is.
        let own = component.compile(ARCH)?;
        let program = std::env::current_exe()?.with_file_name(PROGRAM);
        let program = (wasi == WasiExtent::Whole).then_some(program);
        let answer = versions::ask(name, &own, program.as_deref(), policy.limits())
            .with_context(|| format!("{}: the component's answer to VERSION", file.display()))?;
        let (versions, unknown_versions) = named(answer, &policy, file)?;
        let code = if architecture == ARCH { own } else { component.compile(architecture)? };
        let digest = component.digest.clone();
        let manifest = Manifest {
            plugin: name.to_owned(),
            code: catalog::sha256(&code),
            size: code.len() as u64,
            engine: engine::fingerprint_for(architecture),
            wasi,
            imports: Names::List(imports),
            versions,
            policy: Form::of(&text),
            version: self.own_version(version.as_deref(), &digest, catalog),
            postern: env!("CARGO_PKG_VERSION").to_owned(),
            digest,
        };
        let component = (!self.shipped).then(|| component.into_bytes());
        Ok(PluginFiles { manifest, policy: text, code, component, unknown_versions })
    }

    /// Returns the plugin's own version. The build marks the plugins that come with Postern. The mark stays when a user
    /// adds the component of a shipped plugin again.
    fn own_version(&self, said: Option<&str>, digest: &str, catalog: &Path) -> Option<String> {
        let name = self.name;
        let before = || Manifest::read(catalog, name).ok().filter(|before| before.digest == digest)?.version;
        if self.shipped || before().is_some_and(|version| own_version::is_shipped(&version)) {
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
}

impl PluginFiles {
    /// Reads a plugin's files from a directory: a build, or a bundle that `postern compile` has written.
    ///
    /// # Errors
    /// A file is missing, or has not the form that it must have.
    pub fn read(directory: &Path, plugin: &str) -> Result<Self> {
        let read = |ending: &str| {
            let path = directory.join(format!("{plugin}.{ending}"));
            fs::read(&path).with_context(|| path.display().to_string())
        };
        Self::of(&read("json")?, &read("toml")?, &read("cwasm")?)
    }

    /// Reads the contents of a plugin's files: manifest, policy and code.
    ///
    /// # Errors
    /// The manifest is no manifest, or the policy is no text.
    pub fn of(manifest: &[u8], policy: &[u8], code: &[u8]) -> Result<Self> {
        Ok(Self {
            manifest: serde_json::from_slice(manifest).context("its manifest")?,
            policy: std::str::from_utf8(policy).context("its policy")?.to_owned(),
            code: code.to_owned(),
            component: None,
            unknown_versions: Vec::new(),
        })
    }

    /// Checks that a run would accept these files.
    ///
    /// # Errors
    /// The files don't fit each other, or the code is for another engine.
    pub fn prove(&self, directory: &Path, plugin: &str) -> Result<()> {
        let Self { manifest, policy, code, .. } = self;
        ensure!(manifest.plugin == plugin, "its manifest belongs to \"{}\"", manifest.plugin);
        ensure!(
            manifest.size == code.len() as u64 && manifest.code == catalog::sha256(code),
            "its code has another digest than its manifest"
        );
        ensure!(manifest.engine == engine::fingerprint(), "its code is for another engine, \"{}\"", manifest.engine);
        ensure!(
            manifest.policy.as_ref().is_none_or(|policy| policy.is_true()),
            "its manifest has tables that its policy lacks"
        );
        let path = directory.join(format!("{plugin}.toml"));
        let policy = Policy::parse(policy, &path.display().to_string()).map_err(anyhow::Error::msg)?;
        catalog::check_pin(policy.digest(), &manifest.digest, plugin, &path).map_err(anyhow::Error::msg)
    }

    /// Returns the files by name. If a catalog can't be replaced at one instant, the code is written last. Before the code
    /// is written, a new plugin isn't run, and the code of an old plugin doesn't fit the new manifest. So no code ever runs under a policy
    /// that grants more than its own policy.
    ///
    /// # Errors
    /// The manifest can't be written as JSON.
    pub fn parts(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let name = &self.manifest.plugin;
        let component = self.component.iter().map(|bytes| (format!("{name}.{COMPONENT}"), bytes.clone()));
        let parts = [
            (format!("{name}.json"), serde_json::to_vec_pretty(&self.manifest)?),
            (format!("{name}.toml"), self.policy.clone().into_bytes()),
            (format!("{name}.cwasm"), self.code.clone()),
        ];
        Ok(component.chain(parts).collect())
    }
}

/// The options of `postern compile`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The component, built for wasm32-wasip2.
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,
    /// Its policy (TOML).
    #[arg(long)]
    policy: PathBuf,
    /// The plugin's name: the `type` of network configurations [default: the file's name].
    #[arg(long)]
    name: Option<String>,
    /// The architecture of the nodes: x86_64 or aarch64 [default: that of this machine].
    #[arg(long, default_value = ARCH, hide_default_value = true)]
    architecture: String,
    /// The directory for the three files. It is made if it is missing.
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// The plugin comes with this Postern (`make dist`): it says the native plugin's version, and Postern's.
    #[arg(long, hide = true)]
    shipped: bool,
}

/// Compiles a plugin for other nodes.
pub fn run(options: &Options) -> Result<()> {
    let name = name_of(&options.file, options.name.as_deref())?;
    // The component is compiled for this machine first, which takes long.
    let architecture = options.architecture.as_str();
    ensure!(
        architecture == ARCH || engine::ARCHITECTURES.contains(&architecture),
        "{COMPILER} does not compile for the architecture \"{architecture}\", but for {}",
        engine::ARCHITECTURES.join(" and ")
    );
    let catalogs = Catalogs::find().ok();
    let catalog = catalogs.as_ref().and_then(|catalogs| catalogs.of(&name).ok()).unwrap_or(Path::new(""));
    let source =
        Source { file: &options.file, policy: &options.policy, name: &name, catalog, shipped: options.shipped };
    // A bundle is code for one engine, without the component.
    let plugin = PluginFiles { component: None, ..source.compile(architecture)? };
    let output = std::path::absolute(&options.output).with_context(|| options.output.display().to_string())?;
    files::make_directory(&output)?;
    for (file, bytes) in plugin.parts()? {
        Ready::write(&output.join(file), &bytes, 0o644)?.commit()?;
    }
    output::text(&format!(
        "{name}: compiled for {}, {} bytes, component sha256:{}\nroot adds it on a node: postern add {}",
        plugin.manifest.engine,
        plugin.manifest.size,
        plugin.manifest.digest,
        output.join(format!("{name}.json")).display()
    ))
}

/// Returns the name of a plugin: the given name, or the name of its file.
///
/// # Errors
/// It can't be the name of a plugin.
pub fn name_of(file: &Path, given: Option<&str>) -> Result<String> {
    let name = given.map_or_else(|| subject::stem(file), str::to_owned);
    ensure!(
        subject::is_name(&name),
        "\"{name}\" is no name for a plugin: a plugin's name has only letters, digits, `-`, `_` and `.`, and is not the \
         name of one of Postern's own files; give another name with --name"
    );
    Ok(name)
}

/// True if a plugin of this name comes with Postern.
pub fn is_shipped(name: &str) -> bool {
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
