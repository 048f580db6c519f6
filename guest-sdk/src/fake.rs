//! A fake host for tests on the build machine: a simulated kernel behind the functions that a component imports.
//!
//! Each thread has its own, so tests can run in parallel. The simulation is in [`Kernel`], a separate crate, because
//! `postern plan` runs guests against it too.
#![allow(clippy::result_large_err, reason = "the host's own error type, in code that only tests run")]

pub use postern_sim::{Ipam, Kernel, Lease, Link, Place};

use crate::error::Error;
use crate::plugin::{Plugin, dispatch};
use postern_cni::Env;
use postern_types::{OpError, Operation, Reply};
use std::cell::RefCell;

thread_local! {
    static KERNEL: RefCell<Kernel> = RefCell::new(Kernel::default());
}

/// Makes `kernel` the kernel of this thread.
pub fn install(kernel: Kernel) {
    with(|current| *current = kernel);
}

/// Reads or changes the kernel of this thread.
pub fn with<T>(act: impl FnOnce(&mut Kernel) -> T) -> T {
    KERNEL.with_borrow_mut(act)
}

/// Returns the names of the operations that succeeded or failed since the kernel was installed.
pub fn log() -> Vec<&'static str> {
    with(|kernel| kernel.log.iter().map(Operation::name).collect())
}

/// Answers an operation; every wrapper of a capability calls this.
pub(crate) fn call(operation: &Operation) -> Result<Reply, OpError> {
    with(|kernel| kernel.call(operation))
}

/// The output of a plugin, as the runtime would see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The result, or the error object.
    pub stdout: String,
    /// 0, or 1 for failure.
    pub status: u8,
}

/// Runs one verb of the plugin for container `c1`, interface `eth0` and namespace `/run/netns/c1`.
pub fn run(plugin: &impl Plugin, verb: &str, stdin: &str) -> Outcome {
    run_with(plugin, env(verb), stdin)
}

/// As [`run`], with a given environment.
pub fn run_with(plugin: &impl Plugin, env: Env, stdin: &str) -> Outcome {
    match call_verb(plugin, env, stdin) {
        Ok(stdout) => Outcome { stdout, status: 0 },
        Err(error) => Outcome { stdout: error.object().to_json(), status: 1 },
    }
}

/// As [`run_with`], with the error unconverted.
///
/// # Errors
/// The plugin's.
pub fn call_verb(plugin: &impl Plugin, env: Env, stdin: &str) -> Result<String, Error> {
    dispatch(plugin, env, || Ok(stdin.as_bytes().to_vec()))
}

/// Returns the environment that [`run`] gives the plugin.
pub fn env(verb: &str) -> Env {
    Env {
        command: verb.to_owned(),
        container_id: "c1".to_owned(),
        netns: "/run/netns/c1".to_owned(),
        ifname: "eth0".to_owned(),
        path: "/opt/cni/bin".to_owned(),
        ..Env::default()
    }
}
