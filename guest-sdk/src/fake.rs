//! A fake host for tests of the build machine: a simulated kernel behind the same functions that a component imports.
//!
//! Each thread has its own, so that tests run side by side. [`Kernel`] alone knows how the simulation works: it is a crate
//! of its own, since `postern plan` runs guests against it too.
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

/// Makes `kernel` this thread's.
pub fn install(kernel: Kernel) {
    with(|current| *current = kernel);
}

/// Looks at this thread's kernel, or changes it.
pub fn with<T>(act: impl FnOnce(&mut Kernel) -> T) -> T {
    KERNEL.with_borrow_mut(act)
}

/// The operations that succeeded or failed since the kernel was installed, by name.
pub fn log() -> Vec<&'static str> {
    with(|kernel| kernel.log.iter().map(Operation::name).collect())
}

/// What every wrapper of a capability calls.
pub(crate) fn call(operation: &Operation) -> Result<Reply, OpError> {
    with(|kernel| kernel.call(operation))
}

/// What the runtime would see.
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

/// The same in an environment of one's own.
pub fn run_with(plugin: &impl Plugin, env: Env, stdin: &str) -> Outcome {
    match call_verb(plugin, env, stdin) {
        Ok(stdout) => Outcome { stdout, status: 0 },
        Err(error) => Outcome { stdout: error.object().to_json(), status: 1 },
    }
}

/// The same, with the error as it is.
///
/// # Errors
/// The plugin's.
pub fn call_verb(plugin: &impl Plugin, env: Env, stdin: &str) -> Result<String, Error> {
    dispatch(plugin, env, || Ok(stdin.as_bytes().to_vec()))
}

/// The environment that [`run`] gives the plugin.
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
