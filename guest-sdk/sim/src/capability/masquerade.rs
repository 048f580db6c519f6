//! `masquerade`, simulated.

use crate::kernel::Kernel;
use postern_types::{Backend, ErrorCode, OpError, host};

impl host::Masquerade for Kernel {
    fn ensure(&mut self, backend: Option<Backend>) -> Result<(), OpError> {
        let backend = backend.unwrap_or(self.packet_filter);
        if !self.masquerade.contains(&backend) {
            self.masquerade.push(backend);
        }
        Ok(())
    }

    fn check(&mut self, backend: Option<Backend>) -> Result<(), OpError> {
        if backend.map_or(!self.masquerade.is_empty(), |backend| self.masquerade.contains(&backend)) {
            return Ok(());
        }
        Err(OpError::new(ErrorCode::Mismatch, "", "the masquerade rules are missing"))
    }

    fn remove(&mut self) -> Result<(), OpError> {
        self.masquerade.clear();
        Ok(())
    }
}
