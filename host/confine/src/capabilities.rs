//! Capabilities (capabilities(7)).
#![allow(unsafe_code, reason = "prctl(2) with a number")]

use crate::ConfineError;
use caps::{CapSet, Capability, CapsHashSet};
use nix::errno::Errno;

/// Keeps these capabilities in the permitted and effective sets, as far as the thread has them. The inheritable and
/// ambient sets become empty.
///
/// The bounding set stays. Under `no_new_privs` no program can gain from it: execve(2) keeps the permitted set as it
/// is. To empty it takes forty calls.
///
/// # Errors
/// The kernel refuses to take one away.
pub fn keep_capabilities(kept: &[Capability]) -> Result<(), ConfineError> {
    let failed = |error: caps::errors::CapsError| ConfineError::new("capset", error);
    let permitted = caps::read(None, CapSet::Permitted).map_err(failed)?;
    let left: CapsHashSet = kept.iter().copied().filter(|capability| permitted.contains(capability)).collect();
    caps::clear(None, CapSet::Ambient).map_err(failed)?;
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new()).map_err(failed)?;
    // The effective set must be a part of the permitted set, so it shrinks first.
    caps::set(None, CapSet::Effective, &left).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &left).map_err(failed)
}

/// True if the thread can use this capability.
///
/// # Errors
/// The kernel doesn't say.
pub fn has_capability(capability: Capability) -> Result<bool, ConfineError> {
    caps::has_cap(None, CapSet::Effective, capability).map_err(|error| ConfineError::new("capget", error))
}

/// Empties the bounding set, one capability at a time, up to the last that this kernel knows. The kernel may know more
/// than any list here. Needs `CAP_SETPCAP`.
///
/// # Errors
/// The kernel refuses.
pub fn empty_bounding_set() -> Result<(), ConfineError> {
    for capability in 0..=63 {
        // SAFETY: takes a number and touches no memory.
        match Errno::result(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) }) {
            Ok(_) => {}
            Err(Errno::EINVAL) => break,
            Err(error) => return Err(ConfineError::new("PR_CAPBSET_DROP", error)),
        }
    }
    Ok(())
}
