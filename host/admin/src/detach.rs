//! Detaches attachments that are gone and that the runtimes' cache knows. [`Detacher`] calls DEL of the whole list that
//! made an attachment, the last plugin first, as a runtime would. The plugins get the cached result and arguments. Plugins of
//! Postern and native plugins are executed alike.
//!
//! Only root or this user may be able to write the entry of the cache, each program, and each directory of programs.
//! Nothing is executed before [`Detacher::run`]. A program that does not end is killed.

use anyhow::Result;
use nix::errno::Errno;
use nix::sys::stat::{lstat, stat};
use postern_account::{Namespaces, all_namespaces};
use postern_cni::code;
use postern_confine::{Direct, Environment, Program, Run};
use postern_gate::places;
use postern_gate::upkeep::Audit;
use postern_net::{Attachment, Cache, Cached, Error, List, Plugins, Programs, Runtime, Verb, answer, load_from};
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// The plugin that searches and starts its delegate. A program whose name ends in `flannel` counts as this plugin.
const FLANNEL: &str = "flannel";

/// Finds the lists of attachments, and calls the lists' plugins.
pub struct Detacher<'a> {
    conf_dirs: &'a [PathBuf],
    programs: Programs,
    cache: Cache,
    namespaces: OnceCell<Result<Namespaces, String>>,
    /// The time limit for each program.
    limit: Duration,
}

/// A list to be called for an attachment.
#[derive(Clone, Debug)]
pub struct Detachment {
    /// The attachment, as the cache has it.
    pub attachment: Attachment,
    list: List,
    /// The programs that are executed, in order. An IPAM program follows the plugin that calls it.
    programs: Vec<(String, PathBuf)>,
    /// The directories in which plugins find further programs, if a plugin of the list delegates.
    delegates_in: Vec<PathBuf>,
    limit: Duration,
}

impl Detachment {
    /// Returns the network's name.
    pub fn network(&self) -> &str {
        &self.list.name
    }

    /// Returns the lines for people about the executed programs.
    pub fn words(&self) -> Vec<String> {
        let program = |(plugin, path): &(String, PathBuf)| format!("  {plugin}: {}", path.display());
        let heading = format!("DEL of the list executes these programs, each for {} s at most:", self.limit.as_secs());
        let mut lines: Vec<String> = std::iter::once(heading).chain(self.programs.iter().map(program)).collect();
        if !self.delegates_in.is_empty() {
            let directories: Vec<_> = self.delegates_in.iter().map(|one| one.display().to_string()).collect();
            lines.push(format!("  and flannel's delegate, in {}", directories.join(" or ")));
        }
        lines
    }

    /// Returns the lines for scripts: the programs, and the directories of the delegates.
    pub fn json(&self) -> (Value, Value) {
        let program = |(plugin, path): &(String, PathBuf)| json!({"plugin": plugin, "program": path});
        (self.programs.iter().map(program).collect(), json!(self.delegates_in))
    }

    /// Returns the attachment's name for people: `NETWORK/CONTAINER/INTERFACE`.
    pub fn name(&self) -> String {
        format!("{}/{}/{}", self.list.name, self.attachment.container_id, self.attachment.ifname)
    }
}

impl<'a> Detacher<'a> {
    /// Uses the lists in `conf_dirs`, and the programs in `cni_path`: directories, separated by colons. Each program may
    /// run for `limit`.
    pub fn new(conf_dirs: &'a [PathBuf], cni_path: &str, limit: Duration) -> Self {
        let (programs, cache) = (Programs::of_path(cni_path), Cache::usual());
        Self { conf_dirs, programs, cache, namespaces: OnceCell::new(), limit }
    }

    /// Returns the list to call for an attachment. The caller knows from the record that the container is gone. `None`
    /// if the cache doesn't know the attachment.
    ///
    /// # Errors
    /// The reason why the list can't be called.
    pub fn of(&self, network: &str, container_id: &str, ifname: &str) -> Result<Option<Detachment>, String> {
        let attachment = Attachment::new(container_id, "", ifname);
        match self.cache.find(network, &attachment) {
            Some(cached) => self.prepare(cached).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the attachments without a record that the cache knows and whose container is gone: the container's path
    /// leads nowhere, and no namespace has the attachment's addresses. `is_known` tells which attachments have a record. Attachments
    /// that can't be detached come second, each with the reason.
    pub fn unrecorded(&self, is_known: impl Fn(&Cached) -> bool) -> (Vec<Detachment>, Vec<(String, String)>) {
        let (mut gone, mut kept) = (Vec::new(), Vec::new());
        for cached in self.cache.all() {
            let netns = &cached.attachment.netns;
            if is_known(&cached) || !netns.starts_with('/') || stat(netns.as_str()) != Err(Errno::ENOENT) {
                continue;
            }
            let name = format!("{}/{}/{}", cached.network, cached.attachment.container_id, cached.attachment.ifname);
            let gap = self.namespaces().map(Namespaces::gap);
            let prepared = match gap {
                Ok(None) => self.prepare(cached),
                Ok(Some(gap)) => Err(format!("it is unknown whether the container is alive: {gap}")),
                Err(error) => Err(error),
            };
            match prepared {
                Ok(detachment) => gone.push(detachment),
                Err(why) => kept.push((name, why)),
            }
        }
        (gone, kept)
    }

    fn namespaces(&self) -> Result<&Namespaces, String> {
        self.namespaces.get_or_init(all_namespaces).as_ref().map_err(Clone::clone)
    }

    fn prepare(&self, cached: Cached) -> Result<Detachment, String> {
        let Cached { network, attachment, config, path } = cached;
        // The kernel gives the programs the rights of this process. So only root and this user may be able to write the
        // entry.
        match places::open_trusted(&path) {
            Ok(Some(_)) => {}
            Ok(None) => return Err(format!("{} is gone", path.display())),
            Err(error) => return Err(error.to_string()),
        }
        let unusable = |error: Error| format!("{}: {error}", path.display());
        // Plugins of the network's own directory are not in the cache. The list in `conf_dirs` is used if it is still
        // equal to the cached list.
        let list = match load_from(self.conf_dirs, &network) {
            Ok(list) if list.text == config => list,
            _ => List::parse(&config).map_err(unusable)?,
        };
        if list.name != network || list.plugins.is_empty() {
            return Err(format!("{} has no list of network \"{network}\"", path.display()));
        }
        self.nobody_has(&list, &attachment)?;
        let mut programs = Vec::new();
        for plugin in list.plugins.iter().rev() {
            for name in std::iter::once(plugin.program.as_str()).chain(plugin.ipam()) {
                programs.push((name.to_owned(), self.program(name)?));
            }
        }
        self.directories()?;
        let delegates = list.plugins.iter().any(|plugin| plugin.program.ends_with(FLANNEL));
        let delegates_in = if delegates { self.programs.directories().to_vec() } else { Vec::new() };
        Ok(Detachment { attachment, list, programs, delegates_in, limit: self.limit })
    }

    /// Fails if another user could put a program into one of the directories. Running plugins look for other programs
    /// in these directories: flannel looks for its delegate. The names of these programs are not known beforehand.
    fn directories(&self) -> Result<(), String> {
        for directory in self.programs.directories() {
            let path = std::path::absolute(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
            // If the directory is missing, the owner of the nearest existing parent could make it.
            let there = path.ancestors().find(|part| lstat(*part).is_ok()).unwrap_or(&path);
            if let Err(why) = places::trust(there) {
                return Err(format!(
                    "plugins find other programs in {}, a directory of CNI_PATH, and another user could put a program \
                     there: {why}; another remedy is to leave that directory out (--cni-path)",
                    directory.display()
                ));
            }
        }
        Ok(())
    }

    /// Fails if a living link with the attachment's name has an address of the result. A record that is wrong must not
    /// end a living attachment.
    fn nobody_has(&self, list: &List, attachment: &Attachment) -> Result<(), String> {
        let Some(result) = self.cache.result(list, attachment).ok().flatten() else { return Ok(()) };
        for address in result.result.ips.iter().map(|ip| ip.address.addr()) {
            let found = self.namespaces()?.with_address(address).is_some_and(|found| {
                let of_link = |index: u32| found.links.iter().any(|l| l.index == index && l.name == attachment.ifname);
                found.addresses.iter().any(|(index, have)| have.net.addr() == address && of_link(*index))
            });
            if found {
                return Err(format!("a living link {} has the attachment's address {address}", attachment.ifname));
            }
        }
        Ok(())
    }

    /// Returns the program of a plugin, if only root and this user can write the program.
    fn program(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.programs.find(name).map_err(|error| error.to_string())?;
        places::trust(&path).map_err(|error| error.to_string())?;
        Ok(path)
    }

    /// Calls DEL of each plugin, the last plugin first, until a plugin fails. After the last DEL, the cache forgets the
    /// attachment.
    ///
    /// # Errors
    /// The error of the plugin that fails, with the plugin's name.
    pub fn run(&self, detachment: &Detachment, logs: &Path) -> Result<(), String> {
        let Detachment { list, programs, .. } = detachment;
        let mut attachment = detachment.attachment.clone();
        // If the path exists again, it leads to another container by now.
        if stat(attachment.netns.as_str()) != Err(Errno::ENOENT) {
            attachment.netns.clear();
        }
        let shown: BTreeMap<&str, &Path> =
            programs.iter().map(|(name, path)| (name.as_str(), path.as_path())).collect();
        let runtime = Runtime { plugins: Shown { detacher: self, shown }, cache: self.cache.clone() };
        let begun = Instant::now();
        let outcome = runtime.delete(list, &attachment).map_err(|error| error.to_string());
        let (programs, delegates_in) = detachment.json();
        let object = json!({"programs": programs, "delegates_in": delegates_in});
        Audit::new(logs, detachment.name()).note_own("GC", "list.delete", &object, "gone", &outcome, begun.elapsed());
        outcome
    }
}

/// Runs only the programs that the operator was shown.
struct Shown<'a> {
    detacher: &'a Detacher<'a>,
    shown: BTreeMap<&'a str, &'a Path>,
}

impl Plugins for Shown<'_> {
    fn run(&self, name: &str, verb: Verb, attachment: Option<&Attachment>, input: &[u8]) -> Result<Vec<u8>, Error> {
        let Detacher { programs, limit, .. } = self.detacher;
        self.detacher.directories().map_err(Error::internal)?;
        let path = self.detacher.program(name).map_err(Error::internal)?;
        if self.shown.get(name) != Some(&path.as_path()) {
            return Err(Error::internal(format!("{} is no longer the program that was shown", path.display())));
        }
        let variables = programs.variables(verb, attachment).map(|(name, value)| (name.to_owned(), value));
        let program = Program {
            path: path.clone(),
            arguments: Vec::new(),
            environment: Environment::Inherited(variables.to_vec()),
            input: String::from_utf8_lossy(input).into_owned(),
        };
        let output = Direct.run(&program, Instant::now() + *limit).map_err(|error| {
            let path = path.display();
            if error.raw_os_error() == Some(Errno::ETIMEDOUT as i32) {
                let seconds = limit.as_secs();
                let message = format!(
                    "{path} did not end within {seconds} s (--timeout), and was killed with all that it had started"
                );
                return Error::new(code::TRY_AGAIN_LATER, message);
            }
            Error::new(code::UNKNOWN, format!("netplugin failed with no error message: fork/exec {path}: {error}"))
        })?;
        let Some(status) = output.status else {
            let message = format!("netplugin failed with no error message: {}", output.ended);
            return Err(Error::new(code::UNKNOWN, message));
        };
        answer(ExitStatus::from_raw(status << 8), output.stdout.into_bytes(), output.stderr.as_bytes())
    }
}
