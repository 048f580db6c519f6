//! IP forwarding of the node.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use crate::sys;

/// Host's namespace: turns forwarding on (`net.ipv4.ip_forward`, `net.ipv6.conf.all.forwarding`) for the
/// families of the attachment's addresses, if it is off. The function can't turn forwarding off. Forwarding is
/// a node object: neither a failed ADD nor DEL reverts it. Errors: `denied`, `io`.
pub fn enable() -> Result<(), Error> {
    sys::forwarding::enable()
}
