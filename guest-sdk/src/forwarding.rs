//! IP forwarding of the node.

use crate::error::Error;
use crate::sys::{self, host};

#[cfg(not(target_arch = "wasm32"))]
use postern_types::ops;

/// Turns forwarding on for the families of the attachment's addresses, if it is off.
pub fn enable() -> Result<(), Error> {
    host!(
        component: sys::forwarding::enable().map_err(sys::failure),
        fake: sys::done(ops::Forwarding::Enable),
    )
}
