//! From a plugin's name to its policy and a process that has its code.

use crate::catalog::{self, Unverified};
use crate::places::{self, PlaceError};
use crate::plugin_error::PluginError;
use crate::process::{Engine, Sandbox};
use crate::{plugin_file, policies};
use nix::unistd::Pid;
use postern_policy::Policy;
use std::path::{Path, PathBuf};

/// How often a catalog may be replaced while a plugin is being started.
const REPLACED: u32 = 20;

/// Finds plugins and starts them. One per process.
pub struct Launcher {
    catalog: Result<PathBuf, PlaceError>,
    engine: Engine,
    /// Started ahead of their use, while the request was still being read; or why not.
    warm: Vec<(String, Result<Started, PluginError>)>,
    /// Verified, or given back; or why not.
    ready: Vec<(String, Result<Plugin, PluginError>)>,
    /// The host has confined itself: no process can be started any more.
    closed: bool,
}

/// A plugin whose process has its code, but must not be given anything to run yet.
struct Started {
    code: Unverified,
    policy: Policy,
    sandbox: Sandbox,
}

/// A plugin that is ready to run.
#[derive(Debug)]
pub struct Plugin {
    /// What it may do.
    pub policy: Policy,
    /// The process that has its code.
    pub sandbox: Sandbox,
    /// SHA-256 of its component, hexadecimal.
    pub digest: String,
}

impl Launcher {
    /// A launcher for the catalog of this executable.
    pub fn new(engine: Engine) -> Self {
        let catalog = places::catalog().and_then(|catalog| Ok(places::trust(&catalog).map(|()| catalog)?));
        Self { catalog, engine, warm: Vec::new(), ready: Vec::new(), closed: false }
    }

    /// Whether the catalog has compiled code of this name.
    pub fn has(&self, plugin: &str) -> bool {
        self.warm.iter().any(|(name, started)| name == plugin && started.is_ok())
            || self.ready.iter().any(|(name, ready)| name == plugin && ready.is_ok())
            || plugin_file::is_name(plugin)
                && self.catalog.as_ref().is_ok_and(|catalog| places::is_file(&catalog::code_path(catalog, plugin)))
    }

    /// Whether a plugin of this name is ready to run.
    pub fn is_ready(&self, plugin: &str) -> bool {
        self.ready.iter().any(|(name, ready)| name == plugin && ready.is_ok())
    }

    /// What a plugin is known to do, where its policy can't be read as it stands: by the file that came with it. `None`
    /// without such a file.
    pub fn shipped_policy(&self, plugin: &str) -> Option<Policy> {
        plugin_file::is_name(plugin).then(|| policies::load_shipped(self.catalog.as_ref().ok()?, plugin)).flatten()
    }

    /// Reads the policy of a plugin.
    ///
    /// # Errors
    /// It has none, or none that can be trusted and understood.
    pub fn policy(&self, plugin: &str) -> Result<Policy, PluginError> {
        policies::load(self.catalog.as_ref().map_err(Clone::clone)?, plugin)
    }

    /// Starts a plugin's process now, to be taken by [`Launcher::take`] later. A failure shows there.
    pub fn warm(&mut self, plugin: &str) {
        let started = self.start(plugin);
        self.warm.push((plugin.to_owned(), started));
    }

    /// Gives a plugin back, to be taken again.
    pub fn put_back(&mut self, plugin: &str, ready: Plugin) {
        self.ready.push((plugin.to_owned(), Ok(ready)));
    }

    /// Makes all that has been started ready. From now on nothing else can be taken, and no code is open.
    pub fn close(&mut self, state: &Path) {
        for (name, started) in std::mem::take(&mut self.warm) {
            let ready = started.and_then(|started| make_ready(&name, started, Some(state)));
            self.ready.push((name, ready));
        }
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
        self.ready.iter().filter_map(|(_, plugin)| plugin.as_ref().ok())
    }

    /// A plugin ready to run. `state` is the state directory, where it is noted which code has been verified.
    ///
    /// # Errors
    /// No such plugin, no policy, code that is not to be trusted, no process.
    pub fn take(&mut self, plugin: &str, state: &Path) -> Result<Plugin, PluginError> {
        if let Some(at) = self.ready.iter().position(|(name, _)| name == plugin) {
            return self.ready.swap_remove(at).1;
        }
        let started = match self.warm.iter().position(|(name, _)| name == plugin) {
            Some(at) => self.warm.swap_remove(at).1?,
            None if self.closed => {
                return Err(PluginError::Taken(plugin.to_owned()));
            }
            None => self.start(plugin)?,
        };
        make_ready(plugin, started, Some(state))
    }

    /// The same for who has no state directory, and leaves nothing anywhere.
    ///
    /// # Errors
    /// As [`Launcher::take`].
    pub fn take_unnoted(&self, plugin: &str) -> Result<Plugin, PluginError> {
        make_ready(plugin, self.start(plugin)?, None)
    }

    /// What is installed of a plugin is taken from one catalog: `postern add` replaces the whole directory at one instant,
    /// and what was begun with the one before is begun again.
    fn start(&self, plugin: &str) -> Result<Started, PluginError> {
        if !plugin_file::is_name(plugin) {
            return Err(PluginError::Name(plugin.to_owned()));
        }
        let catalog = self.catalog.as_ref().map_err(Clone::clone)?;
        let mut seen = places::identity(catalog);
        let mut left = REPLACED;
        loop {
            let started = self.start_from(catalog, plugin);
            let now = places::identity(catalog);
            if now == seen || left == 0 {
                return started;
            }
            (seen, left) = (now, left - 1);
        }
    }

    fn start_from(&self, catalog: &Path, plugin: &str) -> Result<Started, PluginError> {
        let code = catalog::open(catalog, plugin, &(self.engine.fingerprint)())?;
        let sandbox = Sandbox::start(code.code()?, self.engine.main, code.program()?)?;
        // Read while the new process maps its code.
        let policy = policies::load(catalog, plugin)?;
        Ok(Started { code, policy, sandbox })
    }
}

/// The last checks before a guest is given anything to run.
fn make_ready(plugin: &str, started: Started, state: Option<&Path>) -> Result<Plugin, PluginError> {
    let Started { code, policy, sandbox } = started;
    let digest = match state {
        Some(state) => code.verify(state)?.digest,
        None => code.verify_by_reading()?.digest,
    };
    catalog::check_pin(policy.digest(), &digest, plugin, Path::new(policy.pin_file().unwrap_or_default()))?;
    Ok(Plugin { policy, sandbox, digest })
}
