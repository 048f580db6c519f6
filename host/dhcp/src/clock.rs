//! Clocks. Leases run by `CLOCK_BOOTTIME`: it never goes back, nobody can set it, and it counts while the machine
//! sleeps. The wall clock counts only over a reboot.

use rustix::time::{ClockId, clock_gettime};

/// Asks for the time once. The first question looks for the kernel's function, by calls that a filter would not allow.
pub fn prepare() {
    let _ = since_boot();
}

/// Returns the milliseconds since the machine was started.
pub fn since_boot() -> u64 {
    milliseconds(ClockId::Boottime)
}

/// Returns the milliseconds since 1970.
pub fn wall() -> u64 {
    milliseconds(ClockId::Realtime)
}

fn milliseconds(clock: ClockId) -> u64 {
    // Neither clock fails.
    let now = clock_gettime(clock);
    let (seconds, nanoseconds) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000)
}
