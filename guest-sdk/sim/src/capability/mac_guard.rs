//! `mac-guard`, simulated.

use crate::kernel::Kernel;
use postern_types::{ErrorCode, Handle, Mac, OpError, host};

impl host::MacGuard for Kernel {
    fn ensure(&mut self, host: Handle, mac: Mac) -> Result<(), OpError> {
        self.held(host)?;
        if !self.is_previous(host) && self.own().and_then(|own| own.info.mac) != Some(mac) {
            let message = format!("{mac} is not the address of the container's end");
            return Err(OpError::new(ErrorCode::InvalidArgument, mac.to_string(), message));
        }
        self.mac_guard = Some(mac);
        Ok(())
    }

    fn check(&mut self, host: Handle, mac: Mac) -> Result<(), OpError> {
        self.held(host)?;
        if self.mac_guard == Some(mac) {
            return Ok(());
        }
        Err(OpError::new(ErrorCode::Mismatch, mac.to_string(), "the rules of the guard are missing"))
    }

    fn remove(&mut self) -> Result<(), OpError> {
        self.mac_guard = None;
        Ok(())
    }
}
