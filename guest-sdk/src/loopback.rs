//! The link `lo` of the container's namespace.

use crate::error::Error;
use crate::sys::{self, host};
use postern_types::Address;

#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, ops},
};

/// The state of `lo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// True if it is up.
    pub up: bool,
    /// Its addresses.
    pub addresses: Vec<Address>,
}

/// Sets `lo` up.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::NotFound`] if there is no such namespace.
pub fn up() -> Result<(), Error> {
    host!(
        component: sys::loopback::up().map_err(sys::failure),
        fake: sys::done(ops::Loopback::Up),
    )
}

/// Sets `lo` down. It succeeds if the namespace is gone.
pub fn down() -> Result<(), Error> {
    host!(
        component: sys::loopback::down().map_err(sys::failure),
        fake: sys::done(ops::Loopback::Down),
    )
}

/// Reads the state of `lo`.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::NotFound`] if there is no such namespace.
pub fn state() -> Result<State, Error> {
    host!(
        component: {
            let state = sys::loopback::addresses().map_err(sys::failure)?;
            Ok(State { up: state.up, addresses: sys::addresses(state.addresses)? })
        },
        fake: ask!(ops::Loopback::Addresses, Reply::Loopback { up, addresses } => State { up, addresses }),
    )
}
