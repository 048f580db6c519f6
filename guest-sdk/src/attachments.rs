//! The objects that this plugin has left on the node.

use crate::error::Error;
use crate::sys::host;

#[cfg(target_arch = "wasm32")]
use crate::sys;
#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, ops},
};

/// GC: removes the objects that this plugin made for attachments outside the runtime's list of valid ones. Returns the
/// number of objects.
pub fn collect() -> Result<u32, Error> {
    host!(
        component: sys::attachments::collect().map_err(sys::failure),
        fake: ask!(ops::Attachments::Collect, Reply::Removed(count) => count),
    )
}
