//! Giving up what a sandbox does not need, at once: descriptors, privileges, resources.
//!
//! Afterwards the process has a socket to the gate and the file of its code. [`crate::seal`] follows when the guest is
//! loaded. All of it holds for one thread: a sandbox never has a second one.
#![allow(unsafe_code, reason = "sigaction(2) with constants")]

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use postern_confine::{
    Capability, close_all_but, empty_bounding_set, forget_environment, has_capability, keep_capabilities,
};
use std::error::Error;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The first of the users and groups that sandboxes have, one for each process number: above what distributions and
/// container runtimes hand out, so that it owns nothing, and neither another sandbox nor `nobody` can send it signals.
const NOBODY: u32 = 0x7fff_0000;

/// Private writable memory in bytes: the guest's own limit is below it, this one is for what the host's side of the
/// sandbox allocates on its behalf.
const DATA: u64 = 512 << 20;

/// Gives up every descriptor but these two, the environment, every capability, the user, and most resources.
///
/// In a user namespace that does not map that user the process stays who it is, without capabilities.
///
/// # Errors
/// The step that failed; the process must end then, since it may have kept what it should not have.
pub fn confine(channel: BorrowedFd<'_>, code: BorrowedFd<'_>) -> Result<(), Box<dyn Error>> {
    close_all_but(&[channel.as_raw_fd(), code.as_raw_fd()])?;
    forget_environment();
    default_signals().map_err(|e| format!("sigaction: {e}"))?;
    drop_privileges()?;
    prctl::set_no_new_privs().map_err(|e| format!("PR_SET_NO_NEW_PRIVS: {e}"))?;
    prctl::set_dumpable(false).map_err(|e| format!("PR_SET_DUMPABLE: {e}"))?;
    die_with_parent(channel)?;
    limit_resources().map_err(|e| format!("setrlimit: {e}"))?;
    Ok(())
}

/// Handlers of the parent would run here otherwise, with what they refer to gone.
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

/// Capabilities and user. The order matters: each step needs a capability that a later one takes away.
fn drop_privileges() -> Result<(), Box<dyn Error>> {
    if has_capability(Capability::CAP_SETPCAP)? {
        empty_bounding_set()?;
    }
    // EPERM: not privileged in the first place, or a user namespace that denies setgroups(2). EINVAL: not mapped.
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

    keep_capabilities(&[])?;
    Ok(())
}

/// Must come after the change of user, which takes the signal back (prctl(2)).
fn die_with_parent(channel: BorrowedFd<'_>) -> Result<(), Box<dyn Error>> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| format!("PR_SET_PDEATHSIG: {e}"))?;
    // A parent that died before this sends no signal, but it has left its end of the channel.
    let mut channel = [PollFd::new(channel, PollFlags::empty())];
    poll(&mut channel, PollTimeout::ZERO).map_err(|e| format!("poll: {e}"))?;
    if channel.iter().any(|fd| fd.any() == Some(true)) {
        return Err("the gate is gone".into());
    }
    Ok(())
}

/// Not the address space: a guest's memory is reserved there, gigabytes of it, and never used.
fn limit_resources() -> nix::Result<()> {
    for resource in [Resource::RLIMIT_NOFILE, Resource::RLIMIT_NPROC, Resource::RLIMIT_CORE, Resource::RLIMIT_FSIZE] {
        setrlimit(resource, 0, 0)?;
    }
    setrlimit(Resource::RLIMIT_DATA, DATA, DATA)
}
