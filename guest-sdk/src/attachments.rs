//! The objects that this plugin has left on the node.

use crate::error::Error;
use crate::sys;

/// GC: removes the objects that this plugin made for attachments outside the runtime's list of valid ones. Returns the
/// number of objects.
pub fn collect() -> Result<u32, Error> {
    sys::attachments::collect()
}
