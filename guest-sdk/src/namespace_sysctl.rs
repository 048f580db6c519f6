//! Kernel settings of the container's network namespace that the operator's configuration lists.

use crate::error::Error;
use crate::sys::{self, host};

#[cfg(not(target_arch = "wasm32"))]
use postern_types::ops;

/// Writes a value, key and value as the configuration has them. A failed ADD puts the earlier value back.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::NotFound`]: this kernel has no such key.
pub fn set(key: &str, value: &str) -> Result<(), Error> {
    host!(
        component: sys::namespace_sysctl::set(key, value).map_err(sys::failure),
        fake: sys::done(ops::NamespaceSysctl::Set { key: key.to_owned(), value: value.to_owned() }),
    )
}

/// Compares a value with that of the kernel.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check(key: &str, value: &str) -> Result<(), Error> {
    host!(
        component: sys::namespace_sysctl::check(key, value).map_err(sys::failure),
        fake: sys::done(ops::NamespaceSysctl::Check { key: key.to_owned(), value: value.to_owned() }),
    )
}
