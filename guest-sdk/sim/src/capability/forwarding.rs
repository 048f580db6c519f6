//! `forwarding`, simulated.

use crate::kernel::Kernel;
use postern_types::{OpError, host};

impl host::Forwarding for Kernel {
    fn enable(&mut self) -> Result<(), OpError> {
        self.forwarding = true;
        Ok(())
    }
}
