//! `ipam`, simulated.

use crate::kernel::Kernel;
use postern_types::{OpError, host};

impl host::Ipam for Kernel {
    fn add(&mut self) -> Result<String, OpError> {
        self.ipam.result.clone()
    }

    fn del(&mut self) -> Result<(), OpError> {
        self.ipam.del.clone()
    }

    fn check(&mut self) -> Result<(), OpError> {
        self.ipam.check.clone()
    }

    fn status(&mut self) -> Result<(), OpError> {
        self.ipam.status.clone()
    }

    fn gc(&mut self) -> Result<(), OpError> {
        self.ipam.gc.clone()
    }
}
