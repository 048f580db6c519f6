//! Capabilities (capabilities(7)).
#![allow(unsafe_code, reason = "capget(2), capset(2), and prctl(2) with a number")]

use crate::ConfineError;
use caps::{CapSet, Capability};
use nix::errno::Errno;

/// `_LINUX_CAPABILITY_VERSION_3` of linux/capability.h.
const VERSION: u32 = 0x2008_0522;

/// `struct __user_cap_header_struct` of linux/capability.h, for the calling thread.
#[repr(C)]
struct Header {
    version: u32,
    thread: i32,
}

/// `struct __user_cap_data_struct` of linux/capability.h: 32 of the capabilities.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Keeps these capabilities in the permitted and effective sets, as far as the thread has them. The inheritable and
/// ambient sets become empty.
///
/// All sets change in one call. The crate `caps` needs nine, and a table for each set: ten times as long.
///
/// The bounding set stays: [`empty_bounding_set`] is for processes that need nothing of it.
///
/// # Errors
/// The kernel refuses to take one away.
pub fn keep_capabilities(kept: &[Capability]) -> Result<(), ConfineError> {
    let header = Header { version: VERSION, thread: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: this version has two structures, which the call fills.
    Errno::result(unsafe { libc::syscall(libc::SYS_capget, &raw const header, sets.as_mut_ptr()) })
        .map_err(|e| ConfineError::new("capget", e))?;
    let wanted = kept.iter().fold(0_u64, |wanted, capability| wanted | capability.bitmask());
    let [low, high] = &mut sets;
    for (set, wanted) in [(low, wanted as u32), (high, (wanted >> 32) as u32)] {
        set.permitted &= wanted;
        set.effective = set.permitted;
        // The ambient set is always a part of this one (capabilities(7)).
        set.inheritable = 0;
    }
    // SAFETY: as above; the call reads both.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) })
        .map(drop)
        .map_err(|e| ConfineError::new("capset", e))
}

/// Empties the bounding set, one capability after the other, up to the last one that this kernel has. The kernel may
/// have more than any list here. A thread without `CAP_SETPCAP` keeps the set, as it can't make any use of it.
///
/// Each call takes 0.45 µs. To ask for each capability first would cost more, because most runtimes have all of them.
///
/// # Errors
/// The kernel refuses to take one away, although the thread has `CAP_SETPCAP`.
pub fn empty_bounding_set() -> Result<(), ConfineError> {
    for capability in 0..=63 {
        // SAFETY: takes a number and touches no memory.
        match Errno::result(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) }) {
            Ok(_) => {}
            // The kernel has no such capability.
            Err(Errno::EINVAL) => break,
            Err(Errno::EPERM)
                if matches!(caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP), Ok(false)) =>
            {
                break;
            }
            Err(error) => return Err(ConfineError::new("PR_CAPBSET_DROP", error)),
        }
    }
    Ok(())
}
