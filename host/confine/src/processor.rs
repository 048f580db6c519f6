//! The processor on which a gate and its sandboxes take turns.
//!
//! From the start of its guest, a sandbox waits for the gate, or the gate for the sandbox. To wake a process on another
//! processor costs ten times as much as on the same one: the other one may have to be interrupted, or be asleep. So the
//! processes of a run meet on one processor once each of them has prepared itself (docs/decisions.md).
#![allow(unsafe_code, reason = "sched_getscheduler(2)")]

use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use std::sync::OnceLock;

/// The processor; `None` if the kernel does not say. Forked processes know it too.
static MEETING_PLACE: OnceLock<Option<usize>> = OnceLock::new();

/// Notes the processor that this process runs on, for all that it forks. Only the first call counts.
pub fn choose_meeting_place() {
    MEETING_PLACE.get_or_init(|| sched_getcpu().ok());
}

/// Keeps the calling thread, and all that it starts, on the processor that was noted. If the kernel refuses, the run is
/// slower and nothing else.
pub fn meet() {
    // SAFETY: takes a number and touches no memory.
    let policy = unsafe { libc::sched_getscheduler(0) };
    // A thread of this policy leaves its processor to no equal one. A guest that computes for ever would keep the gate
    // from stopping it.
    if policy == libc::SCHED_FIFO {
        return;
    }
    let Some(Some(processor)) = MEETING_PLACE.get() else { return };
    let mut only = CpuSet::new();
    if only.set(*processor).is_ok() {
        let _ = sched_setaffinity(Pid::from_raw(0), &only);
    }
}
