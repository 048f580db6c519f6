//! A plugin that is ready for its part in the run. Its code is verified and pinned, and its policy is resolved. All
//! later steps use this one value.

use crate::errors::obstacle;
use crate::plugin_error::PluginError;
use crate::process::Sandbox;
use crate::request::Request;
use crate::versions::{own_versions, supported};
use nix::unistd::Pid;
use postern_cni::{Error, NetConf, Verb, Version, check_version, code};
use postern_policy::{Granted, Policy, PolicyError};
use std::borrow::Cow;
use std::cell::{RefCell, RefMut};
use std::rc::Rc;

/// A plugin whose code is verified and pinned.
#[derive(Debug)]
pub struct Plugin {
    /// The plugin's policy.
    pub policy: Policy,
    /// The process with the plugin's code; `None` if the host does the plugin's work.
    pub sandbox: Option<Sandbox>,
    /// SHA-256 of the plugin's component, hexadecimal.
    pub digest: String,
    /// The versions of CNI that the plugin's component named, see [`crate::catalog::Manifest::versions`].
    pub versions: Option<Vec<String>>,
}

/// A plugin that is ready for its part in the run.
pub struct Prepared {
    pub name: String,
    pub policy: Policy,
    /// SHA-256 of the plugin's component, hexadecimal.
    pub digest: String,
    /// The policy for the configuration `conf`, or the error that a value is ambiguous.
    granted: Result<Granted, PolicyError>,
    conf: Rc<NetConf>,
    versions: Option<Vec<String>>,
    process: RefCell<Process>,
}

/// The worker of a plugin.
#[derive(Debug)]
pub enum Process {
    /// The plugin's guest, in this process.
    Sandbox(Sandbox),
    /// The host, as the plugin's policy says.
    Host,
    /// The process has ended.
    Ended,
}

impl Prepared {
    /// Prepares an opened plugin for the configuration of this request.
    pub fn new(name: &str, opened: Plugin, request: &Request) -> Self {
        let Plugin { policy, sandbox, digest, versions } = opened;
        Self {
            name: name.to_owned(),
            granted: resolve(&policy, request),
            policy,
            digest,
            conf: Rc::clone(&request.conf),
            versions,
            process: RefCell::new(sandbox.map_or(Process::Host, Process::Sandbox)),
        }
    }

    /// Returns the policy for the configuration for which the plugin was prepared. `None` if a value is ambiguous: then
    /// the plugin is not started.
    pub fn granted(&self) -> Option<&Granted> {
        self.granted.as_ref().ok()
    }

    /// Returns the policy for a request. A delegate may be called with another configuration than it was prepared for.
    /// Then the policy is resolved again: names of one configuration are not granted for the other configuration. The
    /// other configuration may make a value of the policy ambiguous.
    pub fn granted_for(&self, request: &Request) -> Result<Cow<'_, Granted>, PolicyError> {
        match Rc::ptr_eq(&self.conf, &request.conf) {
            true => self.granted.as_ref().map(Cow::Borrowed).map_err(Clone::clone),
            false => resolve(&self.policy, request).map(Cow::Owned),
        }
    }

    /// Checks that the plugin supports a version. See [`spoken`].
    pub fn speaks(&self, verb: Verb, version: &str) -> Result<Version, Error> {
        spoken(&self.policy, self.versions.as_deref(), verb, version)
    }

    /// Returns the worker of the plugin, for one run. It is an error if the plugin runs already, or if its process has
    /// ended.
    pub fn process(&self) -> Result<RefMut<'_, Process>, PluginError> {
        let taken = || PluginError::taken(&self.name);
        let process = self.process.try_borrow_mut().map_err(|_| taken())?;
        if matches!(*process, Process::Ended) { Err(taken()) } else { Ok(process) }
    }

    /// Ends the plugin's process, unless the process is in use.
    pub fn end(&self) {
        if let Ok(mut process) = self.process.try_borrow_mut() {
            *process = Process::Ended;
        }
    }

    /// Returns the process ID of the plugin's process, if there is one.
    pub fn pid(&self) -> Option<Pid> {
        match &*self.process.try_borrow().ok()? {
            Process::Sandbox(sandbox) => Some(sandbox.pid()),
            Process::Host | Process::Ended => None,
        }
    }
}

fn resolve(policy: &Policy, request: &Request) -> Result<Granted, PolicyError> {
    policy.resolve(request.conf.raw(), request.args())
}

/// Checks that a plugin supports the version of its configuration. On DEL, policy does not limit the versions. `named`
/// are the versions that the component names.
///
/// # Errors
/// Code 1, as from the plugin itself.
pub fn spoken(policy: &Policy, named: Option<&[String]>, verb: Verb, version: &str) -> Result<Version, Error> {
    let versions = if verb == Verb::Del { own_versions(named) } else { supported(policy.versions(), named)? };
    check_version(verb, version, &versions)
}

/// Returns the error for a plugin that can't be run.
pub fn unavailable(verb: Verb, reason: &PluginError) -> Error {
    match verb {
        Verb::Status => Error::new(code::PLUGIN_NOT_AVAILABLE, reason.to_string()),
        _ => obstacle(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(config: &str) -> Request {
        Request::of_test("bridge", Verb::Add, config)
    }

    fn prepared(request: &Request) -> Prepared {
        let policy = Policy::parse("[grant.bridge]\nnames = [\"${config.bridge | cni0}\"]", "a.toml").unwrap();
        Prepared::new("bridge", Plugin { policy, sandbox: None, digest: String::new(), versions: None }, request)
    }

    /// A policy that was resolved for another configuration would grant that configuration's names.
    #[test]
    fn a_policy_is_for_the_configuration_of_the_request() {
        let [one, other] = [r#"{"bridge":"br1"}"#, r#"{"bridge":"br2"}"#].map(request);
        let plugin = prepared(&one);
        let names = |request: &Request| format!("{:?}", plugin.granted_for(request).unwrap().view());
        assert!(names(&one).contains("br1") && names(&one.of_delegate(Verb::Del)).contains("br1"));
        assert!(names(&other).contains("br2") && !names(&other).contains("br1"));
    }

    #[test]
    fn a_plugin_runs_once_at_a_time_and_not_after_its_end() {
        let plugin = prepared(&request("{}"));
        let running = plugin.process().unwrap();
        assert_eq!(plugin.process().err(), Some(PluginError::taken("bridge")));
        drop(running);
        assert!(plugin.process().is_ok());
        plugin.end();
        assert!(plugin.process().is_err());
    }
}
