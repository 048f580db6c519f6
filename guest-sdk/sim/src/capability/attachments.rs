//! `attachments`, simulated.

use crate::kernel::Kernel;
use postern_types::{OpError, Reply, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Attachments) -> Result<Reply, OpError> {
    match operation {
        ops::Attachments::Collect => Ok(Reply::Removed(std::mem::take(&mut kernel.garbage))),
    }
}
