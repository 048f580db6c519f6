//! `mac-guard`, simulated.

use crate::kernel::Kernel;
use postern_types::{ErrorCode, Handle, Mac, OpError, Reply, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::MacGuard) -> Result<Reply, OpError> {
    match operation {
        ops::MacGuard::Ensure { host, mac } => kernel.guard_ensure(*host, *mac),
        ops::MacGuard::Check { host, mac } => kernel.guard_check(*host, *mac),
        ops::MacGuard::Remove => {
            kernel.mac_guard = None;
            Ok(Reply::Done)
        }
    }
}

impl Kernel {
    fn guard_ensure(&mut self, host: Handle, mac: Mac) -> Result<Reply, OpError> {
        self.held(host)?;
        if !self.is_previous(host) && self.own().and_then(|own| own.info.mac) != Some(mac) {
            let message = format!("{mac} is not the address of the container's end");
            return Err(OpError::new(ErrorCode::InvalidArgument, mac.to_string(), message));
        }
        self.mac_guard = Some(mac);
        Ok(Reply::Done)
    }

    fn guard_check(&self, host: Handle, mac: Mac) -> Result<Reply, OpError> {
        self.held(host)?;
        if self.mac_guard == Some(mac) {
            return Ok(Reply::Done);
        }
        Err(OpError::new(ErrorCode::Mismatch, mac.to_string(), "the rules of the guard are missing"))
    }
}
