//! Linux capabilities (capabilities(7)).

use crate::ConfineError;
use nix::errno::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
};

/// Keeps these Linux capabilities in the permitted and effective sets, if the thread has them. The inheritable and
/// ambient sets become empty.
///
/// All sets change in one call.
///
/// The bounding set stays. [`empty_bounding_set`] empties it.
///
/// # Errors
/// The kernel refuses to take a capability away.
pub fn keep_capabilities(kept: CapabilitySet) -> Result<(), ConfineError> {
    let kept = kept & capabilities(None).map_err(|error| failed("capget", error))?.permitted;
    // The ambient set is always a part of the inheritable set (capabilities(7)).
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(|error| failed("capset", error))
}

fn failed(call: &'static str, error: rustix::io::Errno) -> ConfineError {
    ConfineError::new(call, Errno::from_raw(error.raw_os_error()))
}

/// Empties the bounding set, one capability after the other, up to the last capability of this kernel. The kernel may
/// have more capabilities than any list here. A thread without `CAP_SETPCAP` keeps the set, but can't use it.
///
/// Each call takes 0.45 µs. A question about each capability would cost more, because most runtimes have all
/// capabilities.
///
/// # Errors
/// The kernel refuses to take a capability away, although the thread has `CAP_SETPCAP`.
pub fn empty_bounding_set() -> Result<(), ConfineError> {
    for number in 0..=63 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(capability).map_err(|error| Errno::from_raw(error.raw_os_error())) {
            Ok(()) => {}
            // The kernel has no such capability.
            Err(Errno::EINVAL) => break,
            Err(Errno::EPERM)
                if capabilities(None).is_ok_and(|has| !has.effective.contains(CapabilitySet::SETPCAP)) =>
            {
                break;
            }
            Err(error) => return Err(ConfineError::new("PR_CAPBSET_DROP", error)),
        }
    }
    Ok(())
}
