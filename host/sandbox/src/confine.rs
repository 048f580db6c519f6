//! Gives up everything that a sandbox does not need, at once: descriptors, privileges, resources.
//!
//! Afterwards the process has a socket to the gate and the file of its code. [`crate::seal`] follows when the guest is
//! loaded. All steps are for one thread only: a sandbox never has a second thread.
#![allow(unsafe_code, reason = "sigaction(2) with constants")]

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use postern_confine::{CapabilitySet, close_all_but, empty_bounding_set, forget_environment, keep_capabilities};
use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// The first user and group number of sandboxes; the process ID is added. These numbers are above the numbers of
/// distributions and container runtimes, so such users own nothing. Neither another sandbox nor `nobody` can send
/// signals to such a process.
const NOBODY: u32 = 0x7fff_0000;

/// Private writable memory in bytes. A guest's own limit is 256 MiB at most; the rest is for allocations of the host's
/// code. Together with [`STACK`], the page tables of eight reserved memories and the kernel's own data about them, the
/// whole process stays below 512 MiB.
pub(crate) const DATA: u64 = 384 << 20;

/// The stack in bytes. It grows automatically, and doesn't count as data.
const STACK: u64 = 8 << 20;

/// Gives up the environment, every capability, the user, most resources, and every descriptor except these two.
///
/// In a user namespace that does not map the new user, the process keeps its user, without Linux capabilities.
///
/// # Errors
/// The step that failed. The process must end then, because it may still have a right that it must not keep.
pub fn confine(channel: BorrowedFd<'_>, code: BorrowedFd<'_>) -> Result<(), Box<dyn Error>> {
    give_up(channel, &[channel.as_raw_fd(), code.as_raw_fd()])?;
    limit_resources(DATA).map_err(|e| format!("setrlimit: {e}"))?;
    Ok(())
}

/// The limits of a process that only computes.
#[cfg(feature = "reader")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Processor time in seconds.
    pub seconds: u64,
    /// Memory in bytes, in addition to the memory that the parent process has mapped.
    pub memory: u64,
}

/// As [`confine`], for a process that computes for its parent. It keeps only a channel to its parent.
///
/// # Errors
/// As [`confine`].
#[cfg(feature = "reader")]
pub(crate) fn confine_to(line: BorrowedFd<'_>, bounds: Bounds) -> Result<(), Box<dyn Error>> {
    // The kernel has no limit for additional memory. So the limit is the sum of mapped and additional memory. Memory
    // that the heap has only reserved counts as additional.
    let mapped = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|pages| pages.split_whitespace().next()?.parse::<u64>().ok())
        .ok_or("cannot read /proc/self/statm")?;
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.and_then(|size| u64::try_from(size).ok());
    let mapped = mapped.saturating_mul(page.unwrap_or(4096)).saturating_sub(postern_heap::give_back());
    let space = mapped.saturating_add(bounds.memory);
    give_up(line, &[line.as_raw_fd()])?;
    let limited = limit_resources(bounds.memory).and_then(|()| lower(Resource::RLIMIT_AS, space)).and_then(|()| {
        // The soft limit kills with a separate signal, which shows the reason.
        let (soft, hard) = getrlimit(Resource::RLIMIT_CPU)?;
        setrlimit(Resource::RLIMIT_CPU, soft.min(bounds.seconds), hard.min(bounds.seconds + 1))
    });
    Ok(limited.map_err(|e| format!("setrlimit: {e}"))?)
}

fn give_up(channel: BorrowedFd<'_>, kept: &[RawFd]) -> Result<(), Box<dyn Error>> {
    close_all_but(kept)?;
    forget_environment();
    default_signals().map_err(|e| format!("sigaction: {e}"))?;
    // Lifting a hard limit needs a Linux capability.
    lift_address_space().map_err(|e| format!("setrlimit: {e}"))?;
    give_up_protection();
    drop_privileges()?;
    prctl::set_no_new_privs().map_err(|e| format!("PR_SET_NO_NEW_PRIVS: {e}"))?;
    prctl::set_dumpable(false).map_err(|e| format!("PR_SET_DUMPABLE: {e}"))?;
    die_with_parent(channel)
}

/// Gives up the runtime's protection from the kernel's out-of-memory killer. Services such as containerd have the value
/// -999, and their children inherit it. Without `/proc` the value stays.
///
/// Any process may raise its own value, but only the owner of the process's files in `/proc` may open the file with the
/// value. So this step comes before the change of user.
fn give_up_protection() {
    let Ok(mut score) = File::options().read(true).write(true).open("/proc/self/oom_score_adj") else { return };
    let mut sign = [0];
    if matches!(score.read(&mut sign), Ok(1)) && sign == *b"-" {
        let _ = score.write(b"0");
    }
}

/// Restores the default signal dispositions. Otherwise handlers of the parent would run here, without their data.
fn default_signals() -> nix::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGALRM,
        Signal::SIGCHLD,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ] {
        // SAFETY: the default disposition runs no handler.
        unsafe { sigaction(signal, &default) }?;
    }
    SigSet::empty().thread_set_mask()
}

/// Drops Linux capabilities and user. The order matters: each step needs a capability that a later step removes.
fn drop_privileges() -> Result<(), Box<dyn Error>> {
    // The seccomp filter allows no execve(2), so the bounding set has no use. An empty set still protects if another
    // barrier fails.
    empty_bounding_set()?;
    // EPERM: the process had no privileges, or its user namespace denies setgroups(2). EINVAL: the new user is not mapped.
    match setgroups(&[]) {
        Ok(()) | Err(Errno::EPERM) => {}
        Err(error) => return Err(format!("setgroups: {error}").into()),
    }
    let own = NOBODY | (std::process::id() & 0xffff);
    let (user, group) = (Uid::from_raw(own), Gid::from_raw(own));
    match setresgid(group, group, group).and_then(|()| setresuid(user, user, user)) {
        Ok(()) | Err(Errno::EPERM | Errno::EINVAL) => {}
        Err(error) => return Err(format!("setresuid: {error}").into()),
    }
    Ok(keep_capabilities(CapabilitySet::empty())?)
}

/// Sets the signal for the parent's death. Must come after the change of user, which resets the signal (prctl(2)).
fn die_with_parent(channel: BorrowedFd<'_>) -> Result<(), Box<dyn Error>> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| format!("PR_SET_PDEATHSIG: {e}"))?;
    // A parent that has ended already sends no signal, but its end of the channel is closed.
    let mut channel = [PollFd::new(channel, PollFlags::empty())];
    poll(&mut channel, PollTimeout::ZERO).map_err(|e| format!("poll: {e}"))?;
    if channel.iter().any(|fd| fd.any() == Some(true)) {
        return Err("the gate is gone".into());
    }
    Ok(())
}

/// Sets the limits. The limits of stack and data count all memory growth that [`crate::seal`] allows.
fn limit_resources(data: u64) -> nix::Result<()> {
    for resource in [Resource::RLIMIT_NOFILE, Resource::RLIMIT_NPROC, Resource::RLIMIT_CORE, Resource::RLIMIT_FSIZE] {
        setrlimit(resource, 0, 0)?;
    }
    lower(Resource::RLIMIT_STACK, STACK)?;
    lower(Resource::RLIMIT_DATA, data)
}

/// Lowers a limit. A limit that is lower already stays.
fn lower(resource: Resource, limit: u64) -> nix::Result<()> {
    let (soft, _) = getrlimit(resource)?;
    setrlimit(resource, soft.min(limit), soft.min(limit))
}

/// Raises the limit of the address space to the highest value that this user may set. The reservation for a guest's
/// memory takes gigabytes of the address space, of which most are never used.
fn lift_address_space() -> nix::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_AS)?;
    if soft == RLIM_INFINITY {
        return Ok(());
    }
    match setrlimit(Resource::RLIMIT_AS, RLIM_INFINITY, RLIM_INFINITY) {
        Err(Errno::EPERM) => setrlimit(Resource::RLIMIT_AS, hard, hard),
        other => other,
    }
}
