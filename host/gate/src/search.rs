//! The search for living namespaces, in a separate process.
//!
//! A run forks this process before the run is confined, because a confined process can't inspect other processes. The
//! search gives up its rights except these: it opens files for reading, enters network namespaces, and writes to its
//! parent. Landlock is not used, because it would also block the inspection of other processes.
#![allow(unsafe_code, reason = "fork(2) has no safe form")]

use crate::process::end;
use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid};
use postern_confine::{
    Argument, COMMON, CallRule, CapabilitySet, DESCRIPTOR_FLAGS, DefaultAction, Filter, NO_NEW_CODE, close_all_but,
    fork, keep_capabilities,
};
use postern_namespaces::Namespaces;
use postern_types::channel::{pair, receive, send};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The longest time for a search.
const WITHIN: Duration = Duration::from_secs(5);

/// The time for the answer after the search.
const GRACE: Duration = Duration::from_secs(1);

/// The greatest number of cookies in one message.
const PIECE: usize = 4096;

/// A part of the answer.
#[derive(Serialize, Deserialize)]
enum Part {
    /// The cookies of living namespaces.
    Numbers(Vec<u64>),
    /// The end of the answer, with the reason if something could not be inspected.
    End(Option<String>),
}

/// The namespaces that are alive.
#[derive(Debug)]
pub struct Living {
    numbers: BTreeSet<u64>,
    gap: Option<String>,
}

impl Living {
    /// Searches until a deadline at the latest. A search that fails counts as incomplete.
    pub fn search(deadline: Instant) -> Self {
        let deadline = deadline.min(Instant::now() + WITHIN);
        searched(deadline).unwrap_or_else(|reason| Self { numbers: BTreeSet::new(), gap: Some(reason) })
    }

    /// True if the namespace with this cookie is alive. The error names the places that could not be inspected.
    pub fn has(&self, number: u64) -> Result<bool, String> {
        match &self.gap {
            _ if self.numbers.contains(&number) => Ok(true),
            Some(gap) => Err(gap.clone()),
            None => Ok(false),
        }
    }
}

fn searched(deadline: Instant) -> Result<Living, String> {
    let failed = |error: &dyn std::fmt::Display| format!("the search for the container's namespace failed: {error}");
    let (ours, theirs) = pair().map_err(|error| failed(&error))?;
    let parent = nix::unistd::getpid();
    // SAFETY: the child never returns from `serve`, and this process has no other thread before it is confined.
    match unsafe { fork() } {
        Ok(ForkResult::Parent { child }) => {
            drop(theirs);
            let answer = answer(&ours, deadline + GRACE);
            // The child is killed, because it may be late. It has nothing to clean up.
            let _ = kill(child, Signal::SIGKILL);
            let _ = waitpid(child, None);
            answer.map_err(|error| failed(&error))
        }
        Ok(ForkResult::Child) => {
            drop(ours);
            serve(&theirs, parent, deadline)
        }
        Err(errno) => Err(failed(&errno)),
    }
}

fn answer(channel: &UnixStream, until: Instant) -> Result<Living, postern_types::channel::ChannelError> {
    let mut numbers = BTreeSet::new();
    loop {
        match receive(channel, Some(until))? {
            Part::Numbers(some) => numbers.extend(some),
            Part::End(gap) => return Ok(Living { numbers, gap }),
        }
    }
}

/// The work of the new process.
fn serve(channel: &UnixStream, parent: Pid, deadline: Instant) -> ! {
    let found = match confine(channel.as_raw_fd(), parent) {
        Ok(()) => Namespaces::numbers(deadline),
        Err(error) => Err(error),
    };
    let (numbers, gap): (Vec<u64>, _) = match found {
        Ok(found) => {
            let gap = found.gap();
            (found.found.iter().map(|found| found.cookie).chain(found.held.into_keys()).collect(), gap)
        }
        Err(error) => (Vec::new(), Some(error)),
    };
    let until = Some(deadline + GRACE);
    let mut sent = Ok(());
    for some in numbers.chunks(PIECE) {
        sent = sent.and_then(|()| send(channel, &Part::Numbers(some.to_vec()), until));
    }
    let _ = sent.and_then(|()| send(channel, &Part::End(gap), until));
    end(0)
}

fn confine(channel: RawFd, parent: Pid) -> Result<(), String> {
    let errno = |errno: nix::Error| errno.to_string();
    close_all_but(&[channel]).map_err(|error| error.to_string())?;
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(errno)?;
    // The parent may have ended before the death signal was set.
    if nix::unistd::getppid() != parent {
        return Err("the run has ended".to_owned());
    }
    prctl::set_no_new_privs().map_err(errno)?;
    // The rights to inspect processes of other users and their files, to enter namespaces, and to query an open
    // `/dev/net/tun`.
    let kept = CapabilitySet::SYS_PTRACE
        | CapabilitySet::DAC_READ_SEARCH
        | CapabilitySet::SYS_ADMIN
        | CapabilitySet::NET_ADMIN;
    keep_capabilities(kept).map_err(|error| error.to_string())?;
    FILTER.with([channel as u32]).install().map_err(|error| error.to_string())
}

/// The system calls of the search. The filter's one variable is the descriptor of the channel.
static FILTER: Filter<1> =
    Filter::new(&[COMMON, CALLS, OLD_CALLS], &[NO_NEW_CODE, DESCRIPTOR_FLAGS, RULES], DefaultAction::Absent);

const CHANNEL: Argument = Argument::Given(0, 0);

/// The flags of openat(2) by which a file is made or changed.
const WRITING: u32 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u32;

const RULES: &[CallRule] = &[
    // No file is opened to be written.
    CallRule(libc::SYS_openat, &[Argument::Lacks(2, WRITING)]),
    #[cfg(target_arch = "x86_64")]
    CallRule(libc::SYS_open, &[Argument::Lacks(1, WRITING)]),
    // Data are written only to the channel, and never to a descriptor that was copied from another process.
    CallRule(libc::SYS_sendto, &[CHANNEL]),
    CallRule(libc::SYS_sendmsg, &[CHANNEL]),
    CallRule(libc::SYS_write, &[CHANNEL]),
    CallRule(libc::SYS_setsockopt, &[CHANNEL]),
    CallRule(libc::SYS_setns, &[Argument::OneOf(1, &[libc::CLONE_NEWNET as u32])]),
    // These requests ask for the namespace of a socket, and for the kind of a namespace.
    CallRule(libc::SYS_ioctl, &[Argument::OneOf(1, &[libc::SIOCGSKNS as u32, libc::NS_GET_NSTYPE as u32])]),
    // A socket of this kind only shows the cookie of its own namespace, and is never connected.
    CallRule(libc::SYS_socket, &[Argument::OneOf(0, &[libc::AF_UNIX as u32])]),
];

const CALLS: &[libc::c_long] = &[
    libc::SYS_read,           // lists of mounts
    libc::SYS_lseek,          // the length of a file
    libc::SYS_openat2,        // the path to a mount, without opening it
    libc::SYS_newfstatat,     // the identity of a namespace
    libc::SYS_fstat,          // newfstatat of older C libraries
    libc::SYS_statx,          // newfstatat of the standard library
    libc::SYS_readlinkat,     // roots of processes
    libc::SYS_getdents64,     // lists of processes and their descriptors
    libc::SYS_pidfd_open,     // a process
    libc::SYS_pidfd_getfd,    // a copy of a process's socket
    libc::SYS_kcmp,           // threads with their own table of open files
    libc::SYS_rt_sigprocmask, // used by the C library
    libc::SYS_getrandom,      // used by the standard library
    libc::SYS_clock_gettime,  // the clock, if the vDSO has none
    libc::SYS_ppoll,          // waiting for the parent
    libc::SYS_getsockopt,     // a namespace's number
    libc::SYS_getpid,         // used by the C library
    libc::SYS_gettid,         // used by the C library
    libc::SYS_geteuid,        // used by the C library
    libc::SYS_sched_yield,    // the heap's lock
];

/// System calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[libc::c_long] = &[
    libc::SYS_stat,     // as newfstatat
    libc::SYS_lstat,    // as newfstatat
    libc::SYS_poll,     // as ppoll
    libc::SYS_readlink, // as readlinkat
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[libc::c_long] = &[];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::allows;

    /// The search writes only to its parent, and changes nothing.
    #[test]
    fn a_search_can_only_look() {
        let filter = FILTER.with([7]);
        let allowed = |call: libc::c_long, first: u64| allows(filter.instructions(), call, [first, 0, 0, 0, 0, 0]);
        for call in [
            libc::SYS_mount,
            libc::SYS_unlinkat,
            libc::SYS_renameat2,
            libc::SYS_kill,
            libc::SYS_ptrace,
            libc::SYS_execve,
            libc::SYS_clone,
            libc::SYS_connect,
            libc::SYS_bind,
            libc::SYS_pwrite64,
            libc::SYS_writev,
            libc::SYS_bpf,
            libc::SYS_process_vm_writev,
        ] {
            assert!((0..100).all(|first| !allowed(call, first)), "{call}");
        }
        for call in [libc::SYS_write, libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_setsockopt] {
            assert!((0..100).all(|first| allowed(call, first) == (first == 7)), "{call}");
        }
    }

    /// After an incomplete search, a namespace that was found is alive, and nothing is known of other namespaces.
    #[test]
    fn only_a_whole_search_proves_that_something_is_gone() {
        let living = |gap: Option<&str>| Living { numbers: [4].into(), gap: gap.map(str::to_owned) };
        assert_eq!((living(None).has(4), living(None).has(5)), (Ok(true), Ok(false)));
        assert_eq!((living(Some("x")).has(4), living(Some("x")).has(5)), (Ok(true), Err("x".to_owned())));
    }
}
