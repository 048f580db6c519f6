//! IP forwarding of the node.

use crate::error::Error;
use crate::sys;

/// Turns forwarding on for the families of the attachment's addresses, if it is off.
pub fn enable() -> Result<(), Error> {
    sys::forwarding::enable()
}
