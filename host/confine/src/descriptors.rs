//! Open files that the process inherited (close_range(2)).
#![allow(unsafe_code, reason = "close_range(2) closes what other objects may own")]

use crate::ConfineError;
use nix::errno::Errno;
use std::os::fd::RawFd;

/// Closes every descriptor except these. The process must have just begun, or must never return to the code that owns
/// the closed descriptors.
///
/// # Errors
/// The errors of close_range(2).
pub fn close_all_but(kept: &[RawFd]) -> Result<(), ConfineError> {
    let mut kept = kept.to_vec();
    kept.sort_unstable();
    let mut first = 0;
    for last in kept.iter().map(|fd| fd - 1).chain([RawFd::MAX]) {
        if first <= last {
            // SAFETY: by the contract above no code of this process uses these descriptors again.
            let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
            Errno::result(result).map_err(|e| ConfineError::new("close_range", e))?;
        }
        first = last.saturating_add(2);
    }
    Ok(())
}
