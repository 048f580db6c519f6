//! Catalog: from a plugin's name to its code, its policy and a process to run it in.

use crate::places;
use crate::policy::Policy;
use crate::process::{ChildMain, Sandbox};
use nix::unistd::Pid;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Finds plugins and starts them. One per process.
pub struct Launcher {
    catalog: Result<PathBuf, String>,
    main: ChildMain,
    /// Started ahead of their use, while the request was still being read; or why not.
    warm: Vec<(String, Result<Plugin, String>)>,
    /// The host has confined itself: no process can be started any more.
    closed: bool,
}

/// A plugin that is ready to run.
#[derive(Debug)]
pub struct Plugin {
    /// What it may do.
    pub policy: Policy,
    /// The process that has its code.
    pub sandbox: Sandbox,
}

impl Launcher {
    /// A launcher for the catalog of this executable.
    pub fn new(main: ChildMain) -> Self {
        let catalog = places::catalog().and_then(|catalog| places::trust(&catalog).map(|()| catalog));
        Self { catalog, main, warm: Vec::new(), closed: false }
    }

    /// Whether the catalog has compiled code of this name.
    pub fn has(&self, plugin: &str) -> bool {
        self.warm.iter().any(|(name, ready)| name == plugin && ready.is_ok())
            || is_plain(plugin) && self.catalog.as_ref().is_ok_and(|catalog| code_path(catalog, plugin).is_file())
    }

    /// Reads the policy of a plugin.
    ///
    /// # Errors
    /// A text for people.
    pub fn policy(&self, plugin: &str) -> Result<Policy, String> {
        Policy::load(self.catalog.as_ref().map_err(Clone::clone)?, plugin)
    }

    /// Starts a plugin's process now, to be taken by [`Launcher::take`] later. A failure shows there.
    pub fn warm(&mut self, plugin: &str) {
        let started = self.start(plugin);
        self.warm.push((plugin.to_owned(), started));
    }

    /// Gives a plugin back, to be taken again.
    pub fn put_back(&mut self, plugin: &str, ready: Plugin) {
        self.warm.push((plugin.to_owned(), Ok(ready)));
    }

    /// From now on only what is ready can be taken.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// The policies of the plugins that are ready.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.ready().map(|plugin| &plugin.policy)
    }

    /// The processes of the plugins that are ready.
    pub fn pids(&self) -> Vec<Pid> {
        self.ready().map(|plugin| plugin.sandbox.pid()).collect()
    }

    fn ready(&self) -> impl Iterator<Item = &Plugin> {
        self.warm.iter().filter_map(|(_, plugin)| plugin.as_ref().ok())
    }

    /// A plugin ready to run.
    ///
    /// # Errors
    /// A text for people: no such plugin, no policy, code that is not to be trusted, no process.
    pub fn take(&mut self, plugin: &str) -> Result<Plugin, String> {
        match self.warm.iter().position(|(name, _)| name == plugin) {
            Some(at) => self.warm.swap_remove(at).1,
            None if self.closed => Err(format!(
                "plugin \"{plugin}\" is running already, or ended badly: it is not started again in this run"
            )),
            None => self.start(plugin),
        }
    }

    fn start(&self, plugin: &str) -> Result<Plugin, String> {
        if !is_plain(plugin) {
            return Err(format!("invalid plugin name: {plugin}"));
        }
        let catalog = self.catalog.as_ref().map_err(Clone::clone)?;
        let code = open_code(catalog, plugin)?;
        let sandbox = Sandbox::start(code, self.main)?;
        // Read while the new process maps its code.
        let policy = Policy::load(catalog, plugin)?;
        Ok(Plugin { policy, sandbox })
    }
}

/// A name that leads to a file of the catalog, and nowhere else.
fn is_plain(plugin: &str) -> bool {
    !plugin.is_empty() && !plugin.contains('/') && !plugin.starts_with('.')
}

fn code_path(catalog: &Path, plugin: &str) -> PathBuf {
    catalog.join(format!("{plugin}.cwasm"))
}

fn open_code(catalog: &Path, plugin: &str) -> Result<OwnedFd, String> {
    let path = code_path(catalog, plugin);
    let file = File::open(&path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => format!(
            "there is no plugin \"{plugin}\" in {}; `postern add FILE.wasm --policy FILE` places one",
            catalog.display()
        ),
        _ => format!("{}: {e}", path.display()),
    })?;
    places::trust_file(&path, &file)?;
    Ok(file.into())
}
