//! `forwarding`, simulated.

use crate::kernel::Kernel;
use postern_types::{OpError, Reply, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Forwarding) -> Result<Reply, OpError> {
    match operation {
        ops::Forwarding::Enable => {
            kernel.forwarding = true;
            Ok(Reply::Done)
        }
    }
}
