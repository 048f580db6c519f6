//! `delegate`, simulated.

use crate::kernel::Kernel;
use postern_types::{ErrorCode, OpError, Reply, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Delegate) -> Result<Reply, OpError> {
    let delegate = &kernel.delegate;
    match operation {
        ops::Delegate::SubnetFile => match &kernel.subnet_file {
            Some(file) => Ok(Reply::Subnet(file.clone())),
            None => {
                let message = "open /run/flannel/subnet.env: no such file or directory";
                Err(OpError::new(ErrorCode::NotFound, "/run/flannel/subnet.env", message))
            }
        },
        ops::Delegate::Add { config } => {
            let reply = delegate.result.clone().map(Reply::Result);
            kernel.delegated = Some(config.clone());
            reply
        }
        ops::Delegate::Del => delegate.del.clone().map(|()| Reply::Done),
        ops::Delegate::Check => delegate.check.clone().map(|()| Reply::Done),
        ops::Delegate::Status => delegate.status.clone().map(|()| Reply::Done),
        ops::Delegate::Gc => delegate.gc.clone().map(|()| Reply::Done),
    }
}
