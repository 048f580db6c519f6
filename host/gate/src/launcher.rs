//! The launcher finds a plugin's policy and code by the plugin's name, and starts a process with the code.

use crate::catalog::{self, Unverified};
use crate::catalogs::Catalogs;
use crate::errors::obstacle;
use crate::manifest::RunManifest;
use crate::places;
use crate::plugin_error::PluginError;
use crate::prepared::{Plugin, Prepared};
use crate::process::{Engine, Sandbox};
use crate::request::Request;
use crate::versions::supported;
use crate::{plugin_file, policies};
use postern_cni::{Error, Verb, Version};
use postern_confine::processor;
use postern_policy::Policy;
use std::path::Path;

/// The most times that a catalog may be replaced while a plugin is being started.
const REPLACED: u32 = 20;

/// Finds plugins and starts them. Each run has one launcher.
pub struct Launcher {
    catalogs: Result<Catalogs, PluginError>,
    engine: Engine,
    /// Plugins that were started and not yet opened, or the reasons why a start failed.
    warm: Vec<(String, Result<Started, PluginError>)>,
    /// The delegates of this run, or the reasons why a delegate can't be run.
    delegates: Vec<(String, Result<Prepared, PluginError>)>,
    /// True if the host has confined itself: no process can be started any more.
    closed: bool,
    /// True if a plugin gets no process when policy lets the host do the plugin's work.
    saves_sandboxes: bool,
}

/// A plugin and a process with its code. The process must not run the code yet.
struct Started {
    code: Unverified,
    policy: Policy,
    sandbox: Option<Sandbox>,
}

impl Launcher {
    /// Makes a launcher for the catalogs of this executable. Each plugin gets a process.
    pub fn new(engine: Engine) -> Self {
        let catalogs = Catalogs::find().and_then(|found| Ok(places::trust(found.own()).map(|()| found)?));
        Self { catalogs, engine, warm: Vec::new(), delegates: Vec::new(), closed: false, saves_sandboxes: false }
    }

    /// From now on, no process is started for a plugin if the host does the plugin's work for `verb`.
    pub fn save_sandboxes(&mut self, verb: Verb) {
        self.saves_sandboxes = verb == Verb::Gc;
    }

    /// Starts processes for all plugins from now on. A plugin that was started without a process is started again.
    pub fn need_sandboxes(&mut self) {
        self.saves_sandboxes = false;
        self.warm.retain(|(_, started)| started.as_ref().is_ok_and(|started| started.sandbox.is_some()));
    }

    /// True if a catalog has compiled code of this name.
    pub fn has(&self, plugin: &str) -> bool {
        self.warm.iter().any(|(name, started)| name == plugin && started.is_ok())
            || self.delegates().any(|delegate| delegate.name == plugin)
            || plugin_file::is_name(plugin) && self.catalogs.as_ref().is_ok_and(|found| found.have_code(plugin))
    }

    /// True if a catalog has a policy of this name: the plugin was installed, even if its code is missing. A confined
    /// gate can check this, but can read nothing in a catalog.
    pub fn lists(&self, plugin: &str) -> bool {
        plugin_file::is_name(plugin) && self.catalogs.as_ref().is_ok_and(|found| found.have_policy(plugin))
    }

    /// Returns the shipped policy of a plugin. If the current policy can't be read, the shipped policy shows the
    /// objects that the plugin may have made. `None` if the file is missing.
    pub fn shipped_policy(&self, plugin: &str) -> Option<Policy> {
        if !plugin_file::is_name(plugin) {
            return None;
        }
        policies::load_shipped(self.catalogs.as_ref().ok()?.of(plugin).ok()?, plugin)
    }

    /// Reads the versions of CNI that a plugin serves under its policy, and the plugin's own version. No guest is run.
    pub(crate) fn versions(&self, plugin: &str) -> Result<(Vec<Version>, Option<String>), Error> {
        let read = |catalog: &Path| {
            // A missing policy is reported before other errors.
            let mut manifest = RunManifest::of(catalog, plugin);
            let form = manifest.as_mut().ok().and_then(|manifest| manifest.policy.take());
            policies::versions_with(form, catalog, plugin).and_then(|policy| Ok((policy, manifest?)))
        };
        let (policy, manifest) = self.read(plugin, read).map_err(obstacle)?;
        Ok((supported(policy.as_deref(), manifest.versions.as_deref())?, manifest.version))
    }

    /// Starts a plugin's process now, for a later [`Launcher::open`] or [`Launcher::prepare_delegates`]. A second call
    /// does nothing.
    pub fn warm(&mut self, plugin: &str) {
        // A confined process can't start processes.
        if !self.closed && !self.warm.iter().any(|(name, _)| name == plugin) {
            let started = self.start(plugin);
            self.warm.push((plugin.to_owned(), started));
        }
    }

    /// Ends the processes of the delegates.
    pub fn dismiss(&self) {
        self.delegates().for_each(Prepared::end);
    }

    /// Prepares the delegates of the run for this request's configuration: the plugins that were started and not
    /// opened. From now on no other process can be started, and no code is open.
    pub fn prepare_delegates(&mut self, state: &Path, request: &Request) {
        for (name, started) in std::mem::take(&mut self.warm) {
            let opened = started.and_then(|started| make_ready(&name, started, Some(state)));
            let prepared = opened.map(|opened| Prepared::new(&name, opened, request));
            self.delegates.push((name, prepared));
        }
        self.closed = true;
    }

    /// Returns the prepared delegates that can be run.
    pub fn delegates(&self) -> impl Iterator<Item = &Prepared> {
        self.delegates.iter().filter_map(|(_, delegate)| delegate.as_ref().ok())
    }

    /// Returns this plugin and its delegates.
    pub fn with<'p>(&'p self, called: &'p Prepared) -> impl Iterator<Item = &'p Prepared> {
        std::iter::once(called).chain(self.delegates())
    }

    /// Returns a delegate of this run.
    pub(crate) fn delegate(&self, plugin: &str) -> Result<&Prepared, PluginError> {
        let found = self.delegates.iter().find(|(name, _)| name == plugin);
        let (_, delegate) = found.ok_or_else(|| PluginError::taken(plugin))?;
        delegate.as_ref().map_err(Clone::clone)
    }

    /// Opens the plugin that the runtime called. `state` is the state directory, with the notes on verified code.
    pub fn open(&mut self, plugin: &str, state: &Path) -> Result<Plugin, PluginError> {
        let started = match self.warm.iter().position(|(name, _)| name == plugin) {
            Some(at) => self.warm.swap_remove(at).1?,
            None => self.start(plugin)?,
        };
        make_ready(plugin, started, Some(state))
    }

    /// Like [`Launcher::open`], but for a caller without a state directory: nothing is written.
    pub fn open_unnoted(&self, plugin: &str) -> Result<Plugin, PluginError> {
        make_ready(plugin, self.start(plugin)?, None)
    }

    /// Starts a plugin with all its files from one catalog. `postern add` replaces the whole directory in one step. A
    /// start is repeated if the directory was replaced meanwhile.
    fn start(&self, plugin: &str) -> Result<Started, PluginError> {
        if !plugin_file::is_name(plugin) {
            return Err(PluginError(format!("invalid plugin name: {plugin}")));
        }
        self.read(plugin, |catalog| self.start_from(catalog, plugin))
    }

    /// Reads the files of a plugin in its catalog. Only after a failure is the operator's catalog looked at: a plugin of
    /// the own catalog needs no further system call.
    fn read<T>(&self, plugin: &str, read: impl Fn(&Path) -> Result<T, PluginError>) -> Result<T, PluginError> {
        let catalogs = self.catalogs.as_ref().map_err(Clone::clone)?;
        let own = of_one_catalog(catalogs.own(), || read(catalogs.own()));
        if own.is_ok() {
            return own;
        }
        match catalogs.only_added(plugin)? {
            Some(added) => of_one_catalog(added, || read(added)),
            None => own,
        }
    }

    fn start_from(&self, catalog: &Path, plugin: &str) -> Result<Started, PluginError> {
        let mut code = catalog::open(catalog, plugin, &(self.engine.fingerprint)())?;
        let form = code.take_policy();
        processor::choose();
        // The program for all of WASI belongs to the installation.
        let own = self.catalogs.as_ref().map_err(Clone::clone)?.own();
        let start = || Sandbox::start(code.code()?, self.engine.main, code.program(own)?);
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

/// Reads from a catalog, and reads again if the catalog was replaced meanwhile.
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

/// Makes the last checks before a guest may start.
fn make_ready(plugin: &str, started: Started, state: Option<&Path>) -> Result<Plugin, PluginError> {
    let Started { code, policy, sandbox } = started;
    let RunManifest { digest, versions, .. } = code.verify(state)?;
    catalog::check_pin(policy.digest(), &digest, plugin, Path::new(policy.pin_file().unwrap_or_default()))?;
    Ok(Plugin { policy, sandbox, digest, versions })
}
