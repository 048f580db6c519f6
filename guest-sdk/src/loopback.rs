//! The link `lo` of the container's namespace.

use crate::error::Error;
use crate::sys;
pub use postern_types::LoopbackState as State;

/// Sets `lo` up.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::NotFound`] if the namespace is missing.
pub fn up() -> Result<(), Error> {
    sys::loopback::up()
}

/// Sets `lo` down. The call succeeds if the namespace is gone.
pub fn down() -> Result<(), Error> {
    sys::loopback::down()
}

/// Reads the state of `lo`.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::NotFound`] if the namespace is missing.
pub fn state() -> Result<State, Error> {
    sys::loopback::addresses()
}
