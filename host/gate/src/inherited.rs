//! What a process inherits from its runtime and can't work with: signals that are ignored, limits that are too low, a
//! file mode mask that takes away its own rights. What can be put right is; the rest is told before anything is changed.
#![allow(unsafe_code, reason = "sigaction(2) with constants")]

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::stat::{Mode, umask};

/// A limit of this process that no run can do with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// The kernel does not tell it.
    #[error("the limit of its {name} is not known: {reason}")]
    Unknown {
        /// Of what.
        name: &'static str,
        /// What the kernel said.
        reason: String,
    },
    /// It is too low, and may not be raised.
    #[error(
        "the runtime limits its {name} to {has}, and it needs {needs}; raise that for the runtime (`ulimit {option} \
         {needs}` where it is started, or the limits of its service)"
    )]
    TooLow {
        /// Of what.
        name: &'static str,
        /// What a shell calls it.
        option: &'static str,
        /// In the shell's units.
        has: u64,
        /// In the shell's units.
        needs: u64,
    },
}

/// A limit, and how a shell calls and counts it.
struct Limit {
    resource: Resource,
    /// What a run is given, where the runtime lets it.
    wanted: rlim_t,
    /// What a run can't do without.
    least: rlim_t,
    name: &'static str,
    option: &'static str,
    /// Bytes, or pieces, to one of the shell's units.
    unit: rlim_t,
}

/// The stack is for the engine, which lets a guest have 512 KiB of it; one that goes beyond ends with its process. The host
/// itself and the plugins that are shipped need half of what is the least here.
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
    least: 20,
    name: "number of open files",
    option: "-n",
    unit: 1,
};

/// The sandbox reserves 4 GiB of address space for a guest's memory, nearly all of which is never used, and sees that as much
/// as a guest may use is left beside it.
const ADDRESSES: Limit = Limit {
    resource: Resource::RLIMIT_AS,
    wanted: 6 << 30,
    least: 6 << 30,
    name: "address space",
    option: "-v",
    unit: 1 << 10,
};

/// Signals and modes. For a process that has just begun.
pub fn put_right() {
    let set = |signal, handler| {
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
        // SAFETY: neither disposition runs a handler.
        let _ = unsafe { sigaction(signal, &action) };
    };
    // Ignored, it would have the kernel bury children before anybody has asked how they ended.
    set(Signal::SIGCHLD, SigHandler::SigDfl);
    // A file that may not grow is an error to tell, and no reason to be killed.
    set(Signal::SIGXFSZ, SigHandler::SigIgn);
    // Others may write no file of ours, and its owner may: what the mask says of everybody else counts.
    let own = Mode::S_IRWXU;
    let others = Mode::S_IWGRP | Mode::S_IWOTH;
    let inherited = umask(others);
    umask((inherited | others) - own);
}

/// Limits that every run needs.
///
/// # Errors
/// Which is too low, and may not be raised.
pub fn limits() -> Result<(), LimitError> {
    [STACK, FILES].iter().try_for_each(Limit::raise)
}

/// What the engine needs in the process of a guest, and no other process does.
///
/// # Errors
/// As [`limits`].
pub fn engine_limits() -> Result<(), LimitError> {
    ADDRESSES.raise()
}

impl Limit {
    /// As far as the runtime lets it, and no further.
    fn raise(&self) -> Result<(), LimitError> {
        let Self { resource, wanted, least, name, option, unit } = self;
        let (soft, hard) = getrlimit(*resource).map_err(|e| LimitError::Unknown { name, reason: e.to_string() })?;
        let most = hard.min(*wanted);
        if soft >= *wanted
            || soft < most && setrlimit(*resource, most, hard).is_ok() && most >= *least
            || soft >= *least
        {
            return Ok(());
        }
        let (has, needs) = (soft / unit, least / unit);
        Err(LimitError::TooLow { name, option, has, needs })
    }
}
