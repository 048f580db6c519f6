//! Kernel settings of the container's network namespace that the operator's configuration lists.

use crate::error::Error;
use crate::sys;

/// Writes a value. Key and value must be as in the configuration. A failed ADD restores the earlier value.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::NotFound`]: this kernel lacks the key.
pub fn set(key: &str, value: &str) -> Result<(), Error> {
    sys::namespace_sysctl::set(key, value)
}

/// Compares a value with the kernel's value.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check(key: &str, value: &str) -> Result<(), Error> {
    sys::namespace_sysctl::check(key, value)
}
