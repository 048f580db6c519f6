//! The objects that attachments have left on the node, for GC.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use crate::sys;

/// Both namespaces: removes the objects of every attachment of this network that is gone. An attachment is gone
/// if the runtime's list of valid attachments (`cni.dev/valid-attachments`) lacks it. The host finds the
/// objects of all plugins by its records and by the tags of rules. The host removes rules first and addresses
/// last.
///
/// An address is kept if a rule of the node still leads traffic to it. If the runtime passes no list, nothing
/// changes. An empty list means that no attachment is valid. Objects of other networks are never touched.
/// Returns the number of removed objects. Errors: `denied`, `kernel`, `io`.
pub fn collect() -> Result<u32, Error> {
    sys::attachments::collect()
}
