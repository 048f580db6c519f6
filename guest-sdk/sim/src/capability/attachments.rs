//! `attachments`, simulated.

use crate::kernel::Kernel;
use postern_types::{OpError, host};

impl host::Attachments for Kernel {
    fn collect(&mut self) -> Result<u32, OpError> {
        Ok(std::mem::take(&mut self.garbage))
    }
}
