//! fork(2) for every child that may allocate memory, and the end of such a child. No child answers the runtime.
//!
//! A new process has only the thread that forked. In the new process, a lock of another thread stays held for ever. So
//! the heap holds its lock around each fork. pthread_atfork(3) has the same purpose, but musl's version allocates
//! memory, which costs three calls and three page faults in every run. `std::process::Command` forks without this
//! function: its child allocates nothing before exec(3).
#![allow(unsafe_code, reason = "fork(2) and _exit(2) have no safe form")]

use nix::unistd::ForkResult;
use std::sync::OnceLock;

/// Functions that are called around each fork.
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

/// Sets the functions that are called around each later fork. Only the heap calls this function, at its first
/// allocation. So this function does not allocate, and only its first call counts.
pub fn keep_around_forks(around: AroundFork) {
    let _ = AROUND.set(around);
}

/// Forks the process, as fork(2).
///
/// # Safety
/// The child has one thread. Except for the heap, the child uses nothing that another thread of its parent may have
/// locked.
///
/// # Errors
/// The kernel can't make a process.
pub unsafe fn fork() -> nix::Result<ForkResult> {
    let around = AROUND.get();
    if let Some(around) = around {
        (around.before)();
    }
    #[expect(clippy::disallowed_methods, reason = "only this function forks")]
    // SAFETY: the caller guarantees the conditions.
    let forked = unsafe { nix::unistd::fork() };
    if let Some(around) = around {
        match forked {
            Ok(ForkResult::Child) => (around.in_child)(),
            Ok(ForkResult::Parent { .. }) | Err(_) => (around.in_parent)(),
        }
    }
    forked
}

/// Ends this process with an exit status, as _exit(2): it runs no exit handlers and writes no buffers of its parent.
pub fn end_process(status: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(status) }
}
