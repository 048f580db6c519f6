//! `ipam`, simulated.

use crate::kernel::Kernel;
use postern_types::{OpError, Reply, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Ipam) -> Result<Reply, OpError> {
    match operation {
        ops::Ipam::Add => kernel.ipam.result.clone().map(Reply::Result),
        ops::Ipam::Del => kernel.ipam.del.clone().map(|()| Reply::Done),
        ops::Ipam::Check => kernel.ipam.check.clone().map(|()| Reply::Done),
        ops::Ipam::Status => kernel.ipam.status.clone().map(|()| Reply::Done),
        ops::Ipam::Gc => kernel.ipam.gc.clone().map(|()| Reply::Done),
    }
}
