//! The processor on which a gate and its sandboxes take turns.
//!
//! While its guest runs, a sandbox waits for the gate, or the gate for the sandbox. To wake a process on another processor
//! means to interrupt that one, or to get it out of its sleep. So the processes of a run share one processor, once each
//! of them has prepared itself. The gate leaves at the first message of a guest after [`LONGEST`]: others may need that
//! processor for longer.
#![allow(unsafe_code, reason = "sched_getscheduler(2), which C libraries lack")]

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time that a gate stays on the processor.
const LONGEST: Duration = Duration::from_millis(20);

struct Shared {
    processor: usize,
    /// The processors that the runtime allows.
    allowed: CpuSet,
    since: Instant,
}

/// `None` inside if the processes of this run don't share one. Forked processes know it too.
static SHARED: OnceLock<Option<Shared>> = OnceLock::new();

/// True from [`pin`] until the process is unpinned.
static IS_PINNED: AtomicBool = AtomicBool::new(false);

/// Notes the processor that this process runs on, for all that it forks. Only the first call counts.
pub fn choose() {
    SHARED.get_or_init(|| {
        // SAFETY: takes a number and touches no memory.
        let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
        // A thread of SCHED_FIFO leaves its processor to no equal one. A guest that computes for ever would keep the gate
        // from stopping it.
        if policy == libc::c_long::from(libc::SCHED_FIFO) {
            return None;
        }
        let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
        Some(Shared { processor: sched_getcpu().ok()?, allowed, since: Instant::now() })
    });
}

/// Keeps the calling thread, and all that it starts, on the processor that was noted. If the kernel refuses, the run is
/// slower and nothing else.
pub fn pin() {
    let Some(Some(shared)) = SHARED.get() else { return };
    let mut only = CpuSet::new();
    if only.set(shared.processor).is_ok() && sched_setaffinity(Pid::from_raw(0), &only).is_ok() {
        IS_PINNED.store(true, Ordering::Relaxed);
    }
}

/// Lets the calling thread go where the runtime allows, if the run takes long.
pub fn unpin_if_late() {
    let Some(Some(shared)) = SHARED.get() else { return };
    if IS_PINNED.load(Ordering::Relaxed) && shared.since.elapsed() > LONGEST {
        // It is tried once: a cpuset that has changed meanwhile has moved the process already.
        IS_PINNED.store(false, Ordering::Relaxed);
        let _ = sched_setaffinity(Pid::from_raw(0), &shared.allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processors() -> Vec<usize> {
        let set = sched_getaffinity(Pid::from_raw(0)).unwrap();
        (0..CpuSet::count()).filter(|processor| set.is_set(*processor).unwrap()).collect()
    }

    #[test]
    fn a_process_is_pinned_and_unpinned() {
        let before = processors();
        choose();
        let shared = SHARED.get().unwrap().as_ref().unwrap();
        pin();
        assert_eq!(processors(), [shared.processor]);
        while shared.since.elapsed() <= LONGEST {
            assert_eq!(processors(), [shared.processor]);
            unpin_if_late();
        }
        unpin_if_late();
        assert_eq!(processors(), before);
    }
}
