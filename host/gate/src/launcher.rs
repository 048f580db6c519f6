//! The launcher finds a plugin's policy and code by its name, and starts a process with the code.

use crate::catalog::{self, Installed, Unverified};
use crate::manifest::Facts;
use crate::places::{self, PlaceError};
use crate::plugin_error::PluginError;
use crate::process::{Engine, Sandbox};
use crate::{plugin_file, policies};
use nix::unistd::Pid;
use postern_cni::Verb;
use postern_confine::processor;
use postern_policy::Policy;
use std::path::{Path, PathBuf};

/// The most times that a catalog may be replaced while a plugin is being started.
const REPLACED: u32 = 20;

/// The versions of CNI that a file names. `None` means all.
type Named = Option<Vec<String>>;

/// What a plugin supports and is, without a run of its guest.
#[derive(Debug)]
pub struct Versions {
    /// The versions of CNI in its policy.
    pub policy: Named,
    /// The versions of CNI that its component named.
    pub component: Named,
    /// Its own version, see [`crate::catalog::Manifest::version`].
    pub version: Option<String>,
}

/// Finds plugins and starts them. One for each run.
pub struct Launcher {
    catalog: Result<PathBuf, PlaceError>,
    engine: Engine,
    /// Plugins that were started early, while the request was still being read, or the reason for their failure.
    warm: Vec<(String, Result<Started, PluginError>)>,
    /// Plugins that were verified or given back, or the reason for their failure.
    ready: Vec<(String, Result<Plugin, PluginError>)>,
    /// True if the host has confined itself: no process can be started any more.
    closed: bool,
    /// True if a plugin gets no process where policy has the host do its work.
    saves_sandboxes: bool,
}

/// A plugin with a process that has its code. It must not be given anything to run yet.
struct Started {
    code: Unverified,
    policy: Policy,
    sandbox: Option<Sandbox>,
}

/// A plugin that is ready to run.
#[derive(Debug)]
pub struct Plugin {
    /// The plugin's policy.
    pub policy: Policy,
    /// The process with its code; `None` if the host does its work.
    pub sandbox: Option<Sandbox>,
    /// SHA-256 of its component, hexadecimal.
    pub digest: String,
    /// The versions of CNI that its component named, see [`crate::catalog::Manifest::versions`].
    pub versions: Option<Vec<String>>,
}

impl Launcher {
    /// Makes a launcher for the catalog of this executable. Each plugin gets a process.
    pub fn new(engine: Engine) -> Self {
        let catalog = places::catalog().and_then(|catalog| Ok(places::trust(&catalog).map(|()| catalog)?));
        Self { catalog, engine, warm: Vec::new(), ready: Vec::new(), closed: false, saves_sandboxes: false }
    }

    /// Starts no process for a plugin whose work on this verb the host does.
    pub fn save_sandboxes(&mut self, verb: Verb) {
        self.saves_sandboxes = verb == Verb::Gc;
    }

    /// Starts processes for all plugins from now on. A plugin that was started without one is started again.
    pub fn need_sandboxes(&mut self) {
        self.saves_sandboxes = false;
        self.warm.retain(|(_, started)| started.as_ref().is_ok_and(|started| started.sandbox.is_some()));
    }

    /// True if the catalog has compiled code of this name.
    pub fn has(&self, plugin: &str) -> bool {
        self.warm.iter().any(|(name, started)| name == plugin && started.is_ok())
            || self.ready.iter().any(|(name, ready)| name == plugin && ready.is_ok())
            || plugin_file::is_name(plugin)
                && self.catalog.as_ref().is_ok_and(|catalog| places::is_file(&catalog::code_path(catalog, plugin)))
    }

    /// True if the catalog has a policy of this name: the plugin was installed, whatever became of its code. A confined gate
    /// can ask it, but read nothing there.
    pub fn lists(&self, plugin: &str) -> bool {
        let policy = format!("{plugin}.toml");
        plugin_file::is_name(plugin)
            && self.catalog.as_ref().is_ok_and(|catalog| places::is_file(&catalog.join(policy)))
    }

    /// True if a plugin of this name is ready to run.
    pub fn is_ready(&self, plugin: &str) -> bool {
        self.ready.iter().any(|(name, ready)| name == plugin && ready.is_ok())
    }

    /// Returns the shipped policy of a plugin, which tells what it may have made if its current policy can't be read.
    /// `None` without such a file.
    pub fn shipped_policy(&self, plugin: &str) -> Option<Policy> {
        plugin_file::is_name(plugin).then(|| policies::load_shipped(self.catalog.as_ref().ok()?, plugin)).flatten()
    }

    /// Reads the policy of a plugin.
    ///
    /// # Errors
    /// The policy is missing, not trusted, or can't be understood.
    pub fn policy(&self, plugin: &str) -> Result<Policy, PluginError> {
        policies::load(self.catalog.as_ref().map_err(Clone::clone)?, plugin)
    }

    /// Reads the versions of a plugin: those of CNI that its policy and its component name, and its own. No guest is run.
    ///
    /// # Errors
    /// As [`Launcher::policy`]; and there is no manifest, or it makes no sense.
    pub fn versions(&self, plugin: &str) -> Result<Versions, PluginError> {
        let catalog = self.catalog.as_ref().map_err(Clone::clone)?;
        of_one_catalog(catalog, || {
            // A missing policy is the first thing to tell.
            let mut manifest = Facts::of(catalog, plugin);
            let form = manifest.as_mut().ok().and_then(|manifest| manifest.policy.take());
            let policy = policies::versions_with(form, catalog, plugin)?;
            let manifest = manifest?;
            Ok(Versions { policy, component: manifest.versions, version: manifest.version })
        })
    }

    /// Starts a plugin's process now, for a later [`Launcher::take`], which also reports a failure. It is started once.
    pub fn warm(&mut self, plugin: &str) {
        // A confined process can start none.
        if !self.closed && !self.warm.iter().any(|(name, _)| name == plugin) {
            let started = self.start(plugin);
            self.warm.push((plugin.to_owned(), started));
        }
    }

    /// Gives a plugin back, so that it can be taken again.
    pub fn put_back(&mut self, plugin: &str, ready: Plugin) {
        self.ready.push((plugin.to_owned(), Ok(ready)));
    }

    /// Ends the processes of all plugins that were started: nothing runs any more.
    pub fn dismiss(&mut self) {
        self.warm.clear();
        self.ready.clear();
        self.closed = true;
    }

    /// Prepares all started plugins. From now on nothing else can be taken, and no code is open.
    pub fn close(&mut self, state: &Path) {
        for (name, started) in std::mem::take(&mut self.warm) {
            let ready = started.and_then(|started| make_ready(&name, started, Some(state)));
            self.ready.push((name, ready));
        }
        self.closed = true;
    }

    /// Returns the policies of the plugins that are ready, by their names.
    pub fn policies(&self) -> impl Iterator<Item = (&str, &Policy)> {
        let ready = self.ready.iter();
        ready.filter_map(|(name, plugin)| Some((name.as_str(), &plugin.as_ref().ok()?.policy)))
    }

    /// Returns the processes of the plugins that are ready.
    pub fn pids(&self) -> Vec<Pid> {
        self.ready().filter_map(|plugin| plugin.sandbox.as_ref()).map(Sandbox::pid).collect()
    }

    fn ready(&self) -> impl Iterator<Item = &Plugin> {
        self.ready.iter().filter_map(|(_, plugin)| plugin.as_ref().ok())
    }

    /// Returns a plugin that is ready to run. `state` is the state directory, with the notes on verified code.
    ///
    /// # Errors
    /// No such plugin, no policy, code that is not trusted, no process.
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

    /// As [`Launcher::take`], for a caller without a state directory: nothing is written.
    ///
    /// # Errors
    /// As [`Launcher::take`].
    pub fn take_unnoted(&self, plugin: &str) -> Result<Plugin, PluginError> {
        make_ready(plugin, self.start(plugin)?, None)
    }

    /// Starts a plugin with all its files from one catalog. `postern add` replaces the whole directory at one moment. A
    /// start that began with the previous catalog is then repeated.
    fn start(&self, plugin: &str) -> Result<Started, PluginError> {
        if !plugin_file::is_name(plugin) {
            return Err(PluginError::Name(plugin.to_owned()));
        }
        let catalog = self.catalog.as_ref().map_err(Clone::clone)?;
        of_one_catalog(catalog, || self.start_from(catalog, plugin))
    }

    fn start_from(&self, catalog: &Path, plugin: &str) -> Result<Started, PluginError> {
        let mut code = catalog::open(catalog, plugin, &(self.engine.fingerprint)())?;
        let form = code.take_policy();
        processor::choose();
        let start = || Sandbox::start(code.code()?, self.engine.main, code.program()?);
        if self.saves_sandboxes {
            let policy = policies::load_with(form, catalog, plugin)?;
            let sandbox = if policy.collects_by_host() { None } else { Some(start()?) };
            return Ok(Started { code, policy, sandbox });
        }
        let sandbox = Some(start()?);
        // The policy is read while the new process maps its code.
        let policy = policies::load_with(form, catalog, plugin)?;
        Ok(Started { code, policy, sandbox })
    }
}

/// Reads from a catalog, again if it was replaced meanwhile.
fn of_one_catalog<T>(catalog: &Path, mut read: impl FnMut() -> T) -> T {
    let mut seen = places::identity(catalog);
    let mut left = REPLACED;
    loop {
        let read = read();
        let now = places::identity(catalog);
        if now == seen || left == 0 {
            return read;
        }
        (seen, left) = (now, left - 1);
    }
}

/// Makes the last checks before a guest is given anything to run.
fn make_ready(plugin: &str, started: Started, state: Option<&Path>) -> Result<Plugin, PluginError> {
    let Started { code, policy, sandbox } = started;
    let Installed { digest, versions, .. } = match state {
        Some(state) => code.verify(state)?,
        None => code.verify_by_reading()?,
    };
    catalog::check_pin(policy.digest(), &digest, plugin, Path::new(policy.pin_file().unwrap_or_default()))?;
    Ok(Plugin { policy, sandbox, digest, versions })
}
