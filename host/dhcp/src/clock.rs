//! Clocks. Leases use `CLOCK_BOOTTIME`. This clock never goes back, nobody can set it, and it counts while the machine
//! sleeps. The wall clock is used only across a reboot.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the milliseconds since the machine was started.
pub fn since_boot() -> u64 {
    milliseconds(ClockId::CLOCK_BOOTTIME)
}

/// Returns the milliseconds since 1970.
pub fn wall() -> u64 {
    milliseconds(ClockId::CLOCK_REALTIME)
}

fn milliseconds(clock: ClockId) -> u64 {
    // Reading either clock can't fail.
    let now = clock_gettime(clock).map(Duration::from).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
