//! A plugin that is ready for its part in the run. Its code is verified and pinned, and its policy is resolved: all that
//! comes later uses this one value.

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
    /// The process with its code; `None` if the host does its work.
    pub sandbox: Option<Sandbox>,
    /// SHA-256 of its component, hexadecimal.
    pub digest: String,
    /// The versions of CNI that its component named, see [`crate::catalog::Manifest::versions`].
    pub versions: Option<Vec<String>>,
}

/// See the module.
pub struct Prepared {
    pub name: String,
    pub policy: Policy,
    /// SHA-256 of its component, hexadecimal.
    pub digest: String,
    /// The policy for the configuration `conf`, or the reason why a value is ambiguous.
    granted: Result<Granted, PolicyError>,
    conf: Rc<NetConf>,
    versions: Option<Vec<String>>,
    process: RefCell<Process>,
}

/// Who does a plugin's work.
#[derive(Debug)]
pub enum Process {
    /// Its guest, in this process.
    Sandbox(Sandbox),
    /// The host, as its policy says.
    Host,
    /// Nobody any more.
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

    /// Returns the policy for the configuration that the plugin was prepared for; `None` if a value is ambiguous, which
    /// refuses its start.
    pub fn granted(&self) -> Option<&Granted> {
        self.granted.as_ref().ok()
    }

    /// Returns the policy for a request. A delegate may be called with another configuration than it was prepared for: what
    /// the one names is not granted to the other. It may make a value of the policy ambiguous.
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

    /// Returns what does its work, for one run, unless it runs already or its process has ended.
    pub fn process(&self) -> Result<RefMut<'_, Process>, PluginError> {
        let taken = || PluginError::taken(&self.name);
        let process = self.process.try_borrow_mut().map_err(|_| taken())?;
        if matches!(*process, Process::Ended) { Err(taken()) } else { Ok(process) }
    }

    /// Ends its process, unless that is in use.
    pub fn end(&self) {
        if let Ok(mut process) = self.process.try_borrow_mut() {
            *process = Process::Ended;
        }
    }

    /// Returns its process, if it has one.
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

/// Checks that a plugin supports the version of its configuration. On DEL policy does not narrow the versions. `named` is
/// what its component names.
///
/// # Errors
/// Code 1, as by the plugin itself.
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

    /// A policy for another configuration would grant what that one names.
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
