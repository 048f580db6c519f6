//! `masquerade`, simulated.

use crate::kernel::Kernel;
use postern_types::{Backend, ErrorCode, OpError, Reply, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Masquerade) -> Result<Reply, OpError> {
    match operation {
        ops::Masquerade::Ensure { backend } => kernel.masquerade_ensure(*backend),
        ops::Masquerade::Check { backend } => kernel.masquerade_check(*backend),
        ops::Masquerade::Remove => {
            kernel.masquerade.clear();
            Ok(Reply::Done)
        }
    }
}

impl Kernel {
    fn masquerade_ensure(&mut self, backend: Option<Backend>) -> Result<Reply, OpError> {
        let backend = backend.unwrap_or(self.packet_filter);
        if !self.masquerade.contains(&backend) {
            self.masquerade.push(backend);
        }
        Ok(Reply::Done)
    }

    fn masquerade_check(&self, backend: Option<Backend>) -> Result<Reply, OpError> {
        if backend.map_or(!self.masquerade.is_empty(), |backend| self.masquerade.contains(&backend)) {
            return Ok(Reply::Done);
        }
        Err(OpError::new(ErrorCode::Mismatch, "", "the masquerade rules are missing"))
    }
}
