//! The content of an installation: the host executable, its sibling, plugins, and JSON Schemas. All files are read and
//! checked before a file is placed.

use super::files::{self, Ready};
use super::layout::{OPTIONAL, PROGRAMS, SCHEMAS};
use super::paths::InstallPaths;
use crate::compile::{PluginFiles, Source};
use crate::component::{COMPILER, Component};
use crate::output;
use crate::own_version;
use crate::validate;
use anyhow::{Context, Result, ensure};
use nix::unistd::geteuid;
use postern_gate::catalog::{self, Manifest};
use postern_gate::places::{self, CATALOG};
use postern_sandbox::engine;
use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The directories in a version.
const DIRECTORIES: [&str; 2] = [CATALOG, SCHEMAS];
/// The files of a plugin in a catalog.
pub const ENDINGS: [&str; 3] = ["json", "toml", "cwasm"];

/// The file with the component of a plugin that does not come with Postern.
pub const COMPONENT: &str = "wasm";

/// Returns the names of all plugins in a build's catalog.
///
/// # Errors
/// The build has no plugins.
pub fn plugins_of(build: &Path) -> Result<Vec<String>> {
    let catalog = build.join(CATALOG);
    let entries = fs::read_dir(&catalog).with_context(|| missing(&catalog))?;
    let names = entries.flatten().map(|entry| entry.path());
    let names = names.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
    let mut plugins: Vec<String> = names.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    plugins.sort();
    ensure!(!plugins.is_empty(), "{} has no plugin: {AGAIN} first", catalog.display());
    Ok(plugins)
}

/// The ways to a whole build.
const AGAIN: &str = "unpack the archive again, or run `make build`";

/// Returns the words for a file that a build lacks.
fn missing(path: &Path) -> String {
    format!("{}: {AGAIN} first", path.display())
}

/// Files by their place in a version of an installation.
#[derive(Debug, Default)]
pub struct Bundle(BTreeMap<PathBuf, Part>);

/// One file of a bundle.
#[derive(Debug)]
struct Part {
    bytes: Vec<u8>,
    mode: u32,
    /// The file with these bytes; `None` if the bytes were made here.
    source: Option<PathBuf>,
}

impl Part {
    fn of(source: &Path, mode: u32) -> io::Result<Self> {
        Ok(Self { bytes: fs::read(source)?, mode, source: Some(source.to_owned()) })
    }

    fn made(bytes: Vec<u8>) -> Self {
        Self { bytes, mode: 0o644, source: None }
    }

    /// True if a path has exactly this file, which only this user can change.
    fn is_at(&self, path: &Path) -> bool {
        self.is_owned(path) && fs::read(path).is_ok_and(|found| found == self.bytes)
    }

    fn is_owned(&self, path: &Path) -> bool {
        let Ok(meta) = path.symlink_metadata() else { return false };
        meta.is_file() && meta.uid() == geteuid().as_raw() && meta.permissions().mode() & 0o7777 == self.mode
    }

    /// Gives the source a second name, so that the disk has the file once. False if the file has to be copied: the new
    /// name is on another file system, or other users could change the source.
    fn link(&self, path: &Path) -> bool {
        let Some(source) = self.source.as_deref().filter(|source| self.is_owned(source)) else { return false };
        let linked = fs::hard_link(source, path).is_ok();
        // The checked bytes count, and not those of a file that replaced the source meanwhile.
        if linked && !self.is_at(path) {
            let _ = fs::remove_file(path);
            return false;
        }
        linked
    }
}

impl Bundle {
    /// Reads a build, and compares each plugin's code, manifest and policy.
    ///
    /// # Errors
    /// A file is missing, or does not fit the other files.
    pub fn read(build: &Path, plugins: &[String]) -> Result<Self> {
        let mut bundle = Self::default();
        for program in PROGRAMS {
            let path = build.join(program);
            let part = Part::of(&path, 0o755).with_context(|| missing(&path))?;
            bundle.0.insert(program.into(), part);
        }
        for program in OPTIONAL {
            let path = build.join(program);
            match Part::of(&path, 0o755) {
                Ok(part) => drop(bundle.0.insert(program.into(), part)),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            }
        }
        for (name, text) in validate::schema_files()? {
            bundle.0.insert(Path::new(SCHEMAS).join(name), Part::made(text.into_bytes()));
        }
        for plugin in plugins {
            bundle.take(build, plugin)?;
        }
        Ok(bundle)
    }

    /// Adds a plugin of a build.
    fn take(&mut self, build: &Path, plugin: &str) -> Result<()> {
        let catalog = build.join(CATALOG);
        self.add(&catalog, plugin)?;
        self.prove(&catalog, plugin).with_context(|| {
            format!("plugin \"{plugin}\" of the build {} is not in order; {AGAIN} again", build.display())
        })
    }

    /// Refuses files that users other than root could change.
    ///
    /// # Errors
    /// The file or directory that they could change, and how to correct that.
    pub fn trust(&self) -> Result<()> {
        let mut sources = self.0.values().filter_map(|part| part.source.as_deref());
        sources.try_for_each(places::trust).map_err(anyhow::Error::msg)
    }

    fn add(&mut self, catalog: &Path, plugin: &str) -> Result<()> {
        for ending in ENDINGS {
            let file = format!("{plugin}.{ending}");
            let path = catalog.join(&file);
            let part = Part::of(&path, 0o644).with_context(|| missing(&path))?;
            self.0.insert(Path::new(CATALOG).join(file), part);
        }
        let component = format!("{plugin}.{COMPONENT}");
        let path = catalog.join(&component);
        match Part::of(&path, 0o644) {
            Ok(part) => drop(self.0.insert(Path::new(CATALOG).join(component), part)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
        Ok(())
    }

    /// Takes a plugin out.
    fn leave_out(&mut self, plugin: &str) {
        for ending in ENDINGS.into_iter().chain([COMPONENT]) {
            self.0.remove(&Path::new(CATALOG).join(format!("{plugin}.{ending}")));
        }
    }

    fn bytes(&self, plugin: &str, ending: &str) -> &[u8] {
        let path = Path::new(CATALOG).join(format!("{plugin}.{ending}"));
        self.0.get(&path).map(|part| part.bytes.as_slice()).unwrap_or_default()
    }

    /// Checks a plugin as a run would. A plugin that fails is not placed.
    fn prove(&self, catalog: &Path, plugin: &str) -> Result<()> {
        let [manifest, policy, code] = ENDINGS.map(|ending| self.bytes(plugin, ending));
        PluginFiles::of(manifest, policy, code)?.prove(catalog, plugin)
    }

    /// Takes over all plugins of a catalog that this bundle lacks. A plugin whose code is for another engine is compiled
    /// again. Returns these plugins.
    ///
    /// # Errors
    /// A file can't be read, or other users can change it. Or a plugin has code for another engine, and can't be compiled
    /// here.
    pub fn take_over(&mut self, place: &InstallPaths, catalog: &Path, build: &Path) -> Result<Vec<String>> {
        let mut again = Vec::new();
        for entry in fs::read_dir(catalog).into_iter().flatten() {
            let path = entry?.path();
            let is_manifest = path.extension().is_some_and(|ending| ending == "json");
            let Some(plugin) = path.file_stem().and_then(|name| name.to_str()).filter(|_| is_manifest) else {
                continue;
            };
            let has_all = ENDINGS.iter().all(|ending| catalog.join(format!("{plugin}.{ending}")).is_file());
            if !has_all || !self.bytes(plugin, "json").is_empty() {
                continue;
            }
            // An installation must not make files trusted that runs refuse.
            let files = ENDINGS.map(|ending| catalog.join(format!("{plugin}.{ending}")));
            files.iter().try_for_each(|file| place.trust(file)).with_context(|| {
                format!(
                    "other users can change plugin \"{plugin}\", and nothing was replaced: repair its files, or let the \
                     plugin go by `postern remove {plugin}`, then install again"
                )
            })?;
            self.add(catalog, plugin)?;
            let [manifest, policy, code] = ENDINGS.map(|ending| self.bytes(plugin, ending));
            let engine = PluginFiles::of(manifest, policy, code).ok().map(|files| files.manifest.engine);
            if engine.is_some_and(|engine| engine != engine::fingerprint()) {
                if self.renew(catalog, plugin, build)? {
                    again.push(plugin.to_owned());
                }
            } else if let Err(reason) = self.prove(catalog, plugin) {
                // Runs refuse this plugin, with this version and with the earlier version.
                output::say(format!("plugin \"{plugin}\" stays as it is, and its runs fail: {reason:#}"));
            }
        }
        Ok(again)
    }

    /// Replaces code for another engine: by the build's own plugin of this name, or by compiling the plugin again. Returns
    /// true if the plugin was compiled.
    fn renew(&mut self, catalog: &Path, plugin: &str, build: &Path) -> Result<bool> {
        if build.join(CATALOG).join(format!("{plugin}.json")).is_file() {
            // The component of the earlier code does not belong to this code.
            self.leave_out(plugin);
            return self.take(build, plugin).map(|()| false);
        }
        let version = Manifest::read(catalog, plugin).ok().and_then(|manifest| manifest.version);
        if version.is_some_and(|version| own_version::is_shipped(&version)) {
            self.leave_out(plugin);
            output::say(format!("plugin \"{plugin}\" does not come with this version, and is left out"));
            return Ok(false);
        }
        let again = compile_again(catalog, plugin).with_context(|| {
            format!(
                "plugin \"{plugin}\" has code for another engine, and nothing was replaced. Either install {COMPILER}, then \
                 install again. Or let `postern compile` of this version compile the plugin on another machine, add the \
                 result by `{} add {plugin}.json`, then install again",
                build.join("postern-admin").display()
            )
        })?;
        for (file, bytes) in again.parts()? {
            self.0.insert(Path::new(CATALOG).join(file), Part::made(bytes));
        }
        Ok(true)
    }

    /// True if the bundle has this program.
    pub fn has(&self, program: &str) -> bool {
        self.0.contains_key(Path::new(program))
    }

    /// Returns a name for exactly this bundle.
    pub fn id(&self) -> String {
        let sums: Vec<String> = self
            .0
            .iter()
            .map(|(path, Part { bytes, mode, .. })| format!("{} {mode:o} {}\n", path.display(), catalog::sha256(bytes)))
            .collect();
        let sum = catalog::sha256(sums.concat().as_bytes());
        format!("{}-{}", env!("CARGO_PKG_VERSION"), sum.get(..12).unwrap_or_default())
    }

    /// Writes the bundle below a directory as a new version. The version gets its name only when it is complete. If an
    /// equal version exists, that version is used. With `links`, files are linked instead of copied, as far as possible.
    /// Returns the version's name.
    ///
    /// # Errors
    /// The version can't be written.
    pub fn write(&self, versions: &Path, links: bool) -> Result<String> {
        let id = self.id();
        for number in 0.. {
            let name = if number == 0 { id.clone() } else { format!("{id}-{number}") };
            let directory = versions.join(&name);
            if self.is_at(&directory) {
                return Ok(name);
            }
            // A version whose files were changed stays for its current runs.
            if directory.symlink_metadata().is_err() {
                let new = versions.join(".new");
                files::remove_all(&new)?;
                for inner in DIRECTORIES {
                    files::make_directory(&new.join(inner))?;
                }
                for (path, part) in &self.0 {
                    let path = new.join(path);
                    if !(links && part.link(&path)) {
                        Ready::write(&path, &part.bytes, part.mode)?.commit()?;
                    }
                }
                fs::rename(&new, &directory).with_context(|| format!("cannot make {}", directory.display()))?;
                return Ok(name);
            }
        }
        Ok(id)
    }

    /// True if a directory has exactly this content, with the right modes: all users can read, the owner can write.
    pub fn is_at(&self, directory: &Path) -> bool {
        let count = |directory: &Path| fs::read_dir(directory).map_or(0, Iterator::count);
        let inner = DIRECTORIES.map(|inner| directory.join(inner));
        let files = count(directory) + inner.iter().map(|inner| count(inner)).sum::<usize>();
        let is_plain = |path: &Path| {
            path.symlink_metadata().is_ok_and(|meta| meta.is_dir() && meta.permissions().mode() & 0o7777 == 0o755)
        };
        // The walk counts the inner directories as entries.
        files == self.0.len() + inner.len()
            && is_plain(directory)
            && inner.iter().all(|inner| is_plain(inner))
            && self.0.iter().all(|(path, part)| part.is_at(&directory.join(path)))
    }
}

/// Compiles an installed plugin for this engine, from the component in its catalog.
fn compile_again(catalog: &Path, plugin: &str) -> Result<PluginFiles> {
    let file = catalog.join(format!("{plugin}.{COMPONENT}"));
    ensure!(file.is_file(), "its component {} is missing", file.display());
    let policy = catalog.join(format!("{plugin}.toml"));
    let before = Manifest::read(catalog, plugin).map_err(anyhow::Error::msg)?;
    let found = Component::open(&file)?.digest;
    ensure!(
        found == before.digest,
        "{} is not the component of the installed plugin: its digest is {found} and not {}",
        file.display(),
        before.digest
    );
    Source { file: &file, policy: &policy, name: plugin, catalog, shipped: false }.compile(ARCH)
}
