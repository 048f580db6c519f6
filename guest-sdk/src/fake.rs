//! A fake host for tests on the build machine: a simulated kernel behind the functions that a component imports.
//!
//! Each thread has its own fake host, so tests can run in parallel. The simulation, [`Kernel`], is in a separate crate,
//! because `postern plan` runs guests against it too. [`Subject`] has the checks that tests of most plugins need.
#![allow(clippy::result_large_err, reason = "the host's own error type, in code that only tests run")]

pub mod change;
mod subject;

pub use postern_sim::{Ipam, Kernel, Lease, Link, Place};
pub use subject::Subject;

use crate::error::Error;
use crate::plugin::{Plugin, dispatch};
use postern_cni::{Env, code};
use postern_types::{ErrorCode, OpError, Operation, Reply};
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

/// Returns the names of all operations since the kernel was installed, in order.
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

/// Works as [`run`], with a given environment.
pub fn run_with(plugin: &impl Plugin, env: Env, stdin: &str) -> Outcome {
    match call_verb(plugin, env, stdin) {
        Ok(stdout) => Outcome { stdout, status: 0 },
        Err(error) => Outcome { stdout: error.object().to_json(), status: 1 },
    }
}

/// Works as [`run_with`], but returns the plugin's own error.
///
/// # Errors
/// The plugin's error.
pub fn call_verb(plugin: &impl Plugin, env: Env, stdin: &str) -> Result<String, Error> {
    dispatch(plugin, env, || Ok(stdin.as_bytes().to_vec()))
}

/// An IPAM result with one address and its gateway, a default route, and IPAM's DNS.
pub const ONE_ADDRESS: &str = r#"{"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{"domain":"ipam"}}"#;

/// Returns a host with `eth0`, the link of the default route, and `eth1`. IPAM returns `ipam`.
pub fn two_links(ipam: &str) -> Kernel {
    let mut kernel = Kernel::with_ipam(ipam);
    for name in ["eth0", "eth1"] {
        kernel.add_link(Place::Host, name, "");
    }
    kernel.default_link = Some("eth0".to_owned());
    kernel
}

/// The verbs that get a configuration.
const VERBS: [&str; 5] = ["ADD", "DEL", "CHECK", "STATUS", "GC"];

/// Makes each operation of each verb fail in turn, and asserts that the verb fails with the operation's error.
/// `prepare` gets the verb, makes a node on which the verb would succeed, and returns the keys of the configuration.
/// `call` takes verb and keys.
#[track_caller]
pub fn each_operation_fails(prepare: impl Fn(&str) -> String, call: impl Fn(&str, &str) -> Result<String, Error>) {
    numbers_of_failures(prepare, call);
}

/// Works as [`each_operation_fails`], and returns the number of each verb's operations.
#[track_caller]
fn numbers_of_failures(
    prepare: impl Fn(&str) -> String,
    call: impl Fn(&str, &str) -> Result<String, Error>,
) -> [usize; 5] {
    let mut numbers = [0; 5];
    for (verb, number) in VERBS.into_iter().zip(&mut numbers) {
        for n in 0.. {
            *number = n;
            let keys = prepare(verb);
            let before = log().len();
            with(|kernel| kernel.fail_at(n, ErrorCode::Kernel));
            let outcome = call(verb, &keys);
            if log().len() - before <= n {
                assert!(outcome.is_ok(), "{verb} without a failure: {outcome:?}");
                break;
            }
            let is_told = |error: &Error| {
                let codes =
                    [code::INTERNAL, if verb == "STATUS" { code::PLUGIN_NOT_AVAILABLE } else { code::INTERNAL }];
                codes.contains(&error.object().code) && error.object().msg.ends_with("was made to fail")
            };
            assert!(outcome.as_ref().is_err_and(is_told), "{verb} {n}: {outcome:?}");
        }
    }
    numbers
}

/// Asserts that DEL removes the plugin's one link, even with a configuration that ADD would refuse. A second DEL must
/// succeed, also without the namespace. `call` takes verb and keys.
#[track_caller]
pub fn del_tries_everything(call: impl Fn(&str, &str) -> Result<String, Error>) {
    install(two_links(ONE_ADDRESS));
    assert!(call("ADD", "").is_ok());
    let del = |keys: &str| assert_eq!(call("DEL", keys).as_deref(), Ok(""), "DEL with {keys}");
    del(r#","mtu":"x","mode":7,"master":7,"vlanId":"x""#);
    let log = log();
    assert!(log.ends_with(&["link.own", "link.delete", "ipam.del"]), "{log:?}");
    del("");
    with(|kernel| kernel.netns = false);
    del("");
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
