//! Settings from the runtime that a process can't work with: ignored signals, low limits, a file mode mask that takes
//! away its own rights. They are corrected if possible. Other faults are reported before anything is changed.
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
    /// The number of bytes, or of pieces, in one of the shell's units.
    unit: rlim_t,
}

/// The stack. The engine lets a guest have 512 KiB of it, and a guest that uses more ends with its process. The host
/// itself and the shipped plugins need half of the least value here.
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

/// Private writable memory. A run of the shipped plugins needs 3 MiB of it.
const DATA: Limit = Limit {
    resource: Resource::RLIMIT_DATA,
    wanted: 512 << 20,
    least: 16 << 20,
    name: "data",
    option: "-d",
    unit: 1 << 10,
};

/// The address space. The sandbox reserves 4 GiB of it for a guest's memory, and uses very little. It checks that a
/// guest's limit is left beside it.
const ADDRESSES: Limit = Limit {
    resource: Resource::RLIMIT_AS,
    wanted: 6 << 30,
    least: 6 << 30,
    name: "address space",
    option: "-v",
    unit: 1 << 10,
};

/// Corrects signals and modes. For a process that has just begun.
pub fn put_right() {
    let set = |signal, handler| {
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
        // SAFETY: neither disposition runs a handler.
        let _ = unsafe { sigaction(signal, &action) };
    };
    // If it were ignored, the kernel would remove ended children before the host could ask how they ended.
    set(Signal::SIGCHLD, SigHandler::SigDfl);
    // A file that may not grow is an error to report, and no reason to be killed.
    set(Signal::SIGXFSZ, SigHandler::SigIgn);
    // Other users may not write our files, but their owner may. For everyone else the mask holds.
    let own = Mode::S_IRWXU;
    let others = Mode::S_IWGRP | Mode::S_IWOTH;
    let inherited = umask(others);
    let right = (inherited | others) - own;
    if right != others {
        umask(right);
    }
}

/// Checks the limits that every run needs. The error is the limit that is too low and may not be raised.
pub fn limits() -> Result<(), String> {
    [STACK, FILES, DATA].iter().try_for_each(Limit::raise)
}

/// Checks the limits that the engine needs in the process of a guest, and no other process.
pub fn engine_limits() -> Result<(), String> {
    ADDRESSES.raise()
}

impl Limit {
    /// Raises the limit as far as the runtime allows.
    fn raise(&self) -> Result<(), String> {
        let Self { resource, wanted, least, name, option, unit } = self;
        let (soft, hard) = getrlimit(*resource).map_err(|e| format!("the limit of its {name} is not known: {e}"))?;
        let most = hard.min(*wanted);
        if soft >= *wanted
            || soft < most && setrlimit(*resource, most, hard).is_ok() && most >= *least
            || soft >= *least
        {
            return Ok(());
        }
        let (has, needs) = (soft / unit, least / unit);
        Err(format!(
            "the runtime limits its {name} to {has}, and it needs {needs}; raise it where the runtime is started (`ulimit \
             {option} {needs}`), or in its service"
        ))
    }
}
