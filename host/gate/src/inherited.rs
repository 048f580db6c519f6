//! Settings that a process inherits from the runtime and can't work with: ignored signals, low limits, and a file mode
//! mask that removes the owner's rights. The host corrects these settings if possible. Otherwise the host reports the
//! settings before it changes anything.
#![allow(unsafe_code, reason = "sigaction(2) with constants")]

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::stat::{Mode, umask};

/// A limit, with the shell's option and unit for it.
struct Limit {
    resource: Resource,
    /// The value that a run gets if the runtime allows it.
    wanted: rlim_t,
    /// The least value with which a run works.
    least: rlim_t,
    name: &'static str,
    option: &'static str,
    /// The number of bytes, or of objects, in one unit of the shell.
    unit: rlim_t,
}

/// The stack. A guest may use 512 KiB of the stack, and ends with its process if it uses more. The host itself and the
/// shipped plugins need half of the value `least`.
const STACK: Limit = Limit {
    resource: Resource::RLIMIT_STACK,
    wanted: 1 << 20,
    least: 128 << 10,
    name: "stack",
    option: "-s",
    unit: 1 << 10,
};

const FILES: Limit = Limit {
    resource: Resource::RLIMIT_NOFILE,
    wanted: 64,
    least: 22,
    name: "number of open files",
    option: "-n",
    unit: 1,
};

/// Private writable memory. A run of the shipped plugins needs 3 MiB.
const DATA: Limit = Limit {
    resource: Resource::RLIMIT_DATA,
    wanted: 512 << 20,
    least: 16 << 20,
    name: "data",
    option: "-d",
    unit: 1 << 10,
};

/// The address space. The sandbox reserves 4 GiB of address space for a guest's memory, and uses very little of it. The
/// sandbox checks that the remaining address space is enough for the guest's limit.
const ADDRESSES: Limit = Limit {
    resource: Resource::RLIMIT_AS,
    wanted: 6 << 30,
    least: 6 << 30,
    name: "address space",
    option: "-v",
    unit: 1 << 10,
};

/// Corrects ignored signals and the file mode mask. A process must call this function first.
pub fn put_right() {
    let set = |signal, handler| {
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
        // SAFETY: neither disposition runs a handler.
        let _ = unsafe { sigaction(signal, &action) };
    };
    // If SIGCHLD were ignored, the kernel would reap ended children, and the host could not read how they ended.
    set(Signal::SIGCHLD, SigHandler::SigDfl);
    // A file that exceeds a limit must be a reported error, and must not kill the process.
    set(Signal::SIGXFSZ, SigHandler::SigIgn);
    // Only the owner may write Postern's files. The inherited mask decides on the other rights of other users.
    let own = Mode::S_IRWXU;
    let others = Mode::S_IWGRP | Mode::S_IWOTH;
    let inherited = umask(others);
    let right = (inherited | others) - own;
    if right != others {
        umask(right);
    }
}

/// Checks the limits that every run needs. The error names the limit that is too low and can't be raised.
pub fn limits() -> Result<(), String> {
    [STACK, FILES, DATA].iter().try_for_each(Limit::raise)
}

/// Checks the limits that only the engine in a guest's process needs.
pub fn engine_limits() -> Result<(), String> {
    ADDRESSES.raise()
}

impl Limit {
    /// Raises the limit as far as the runtime allows.
    fn raise(&self) -> Result<(), String> {
        let Self { resource, wanted, least, name, option, unit } = self;
        let (soft, hard) = getrlimit(*resource).map_err(|e| format!("the limit of the {name} is not known: {e}"))?;
        let most = hard.min(*wanted);
        if soft >= *wanted
            || soft < most && setrlimit(*resource, most, hard).is_ok() && most >= *least
            || soft >= *least
        {
            return Ok(());
        }
        let (has, needs) = (soft / unit, least / unit);
        Err(format!(
            "the runtime limits the {name} to {has}, and a run needs {needs}; raise the limit where the runtime is started \
             (`ulimit {option} {needs}`), or in the runtime's service"
        ))
    }
}
