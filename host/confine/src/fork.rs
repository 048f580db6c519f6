//! The one fork(2) of Postern.
//!
//! A new process has only the thread that forked. A lock that another thread held stays held there, for ever. So whatever
//! has such a lock holds it around each fork. pthread_atfork(3) is made for that, but musl's allocates memory: two calls
//! and three page faults of every run.
#![allow(unsafe_code, reason = "fork(2) has no safe form")]

use nix::unistd::ForkResult;
use std::sync::OnceLock;

/// What is done around each fork.
#[derive(Clone, Copy, Debug)]
pub struct AroundFork {
    /// In the calling thread, before the fork.
    pub before: fn(),
    /// In the calling thread, after the fork or its failure.
    pub in_parent: fn(),
    /// In the new process.
    pub in_child: fn(),
}

static AROUND: OnceLock<AroundFork> = OnceLock::new();

/// Has this done around each fork from now on. Only the first call counts.
pub fn keep_around_forks(around: AroundFork) {
    // The heap is the only one that calls, at its first allocation: so this must not allocate.
    let _ = AROUND.set(around);
}

/// Forks the process, as fork(2).
///
/// # Safety
/// The child has one thread. It uses nothing that another thread of its parent may have held, except for the heap.
///
/// # Errors
/// The kernel gives no process.
pub unsafe fn fork() -> nix::Result<ForkResult> {
    let around = AROUND.get();
    if let Some(around) = around {
        (around.before)();
    }
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    // SAFETY: the caller's.
    let forked = unsafe { nix::unistd::fork() };
    if let Some(around) = around {
        match forked {
            Ok(ForkResult::Child) => (around.in_child)(),
            Ok(ForkResult::Parent { .. }) | Err(_) => (around.in_parent)(),
        }
    }
    forked
}
