//! The processor on which a gate and its sandboxes take turns.
//!
//! While a guest runs, its sandbox waits for the gate, or the gate waits for the sandbox. To wake a process on another
//! processor, the kernel must interrupt or wake that processor. So the processes of a run share one processor, after
//! each process has prepared itself. The gate leaves the processor at the first message of a guest after [`LONGEST`],
//! because other processes may need the processor.
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

/// The inner value is `None` if the processes of this run share no processor. Forked processes inherit the value.
static SHARED: OnceLock<Option<Shared>> = OnceLock::new();

/// True from [`pin`] until the process is unpinned.
static IS_PINNED: AtomicBool = AtomicBool::new(false);

/// Notes the processor that this process runs on, for this process and its forks. Only the first call counts.
pub fn choose() {
    SHARED.get_or_init(|| {
        // SAFETY: the call takes a number, and touches no memory.
        let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
        // A thread of SCHED_FIFO does not leave its processor to a thread of the same priority. So the gate could not
        // stop a guest that computes for ever.
        if policy == libc::c_long::from(libc::SCHED_FIFO) {
            return None;
        }
        let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
        Some(Shared { processor: sched_getcpu().ok()?, allowed, since: Instant::now() })
    });
}

/// Keeps the calling thread, and everything that it starts, on the noted processor. If the kernel refuses, the run is
/// only slower.
pub fn pin() {
    let Some(Some(shared)) = SHARED.get() else { return };
    let mut only = CpuSet::new();
    if only.set(shared.processor).is_ok() && sched_setaffinity(Pid::from_raw(0), &only).is_ok() {
        IS_PINNED.store(true, Ordering::Relaxed);
    }
}

/// If the run takes long, lets the calling thread use every processor that the runtime allows.
pub fn unpin_if_late() {
    let Some(Some(shared)) = SHARED.get() else { return };
    if IS_PINNED.load(Ordering::Relaxed) && shared.since.elapsed() > LONGEST {
        // A single attempt is enough: a cpuset that has changed meanwhile has moved the process already.
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
