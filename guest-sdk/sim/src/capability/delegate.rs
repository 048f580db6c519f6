//! `delegate`, simulated.

use crate::kernel::Kernel;
use postern_types::{ErrorCode, OpError, SubnetFile, host};

impl host::Delegate for Kernel {
    fn subnet_file(&mut self) -> Result<SubnetFile, OpError> {
        self.subnet_file.clone().ok_or_else(|| {
            let message = "open /run/flannel/subnet.env: no such file or directory";
            OpError::new(ErrorCode::NotFound, "/run/flannel/subnet.env", message)
        })
    }

    fn add(&mut self, config: &str) -> Result<String, OpError> {
        self.delegated = Some(config.to_owned());
        self.delegate.result.clone()
    }

    fn del(&mut self) -> Result<(), OpError> {
        self.delegate.del.clone()
    }

    fn check(&mut self) -> Result<(), OpError> {
        self.delegate.check.clone()
    }

    fn status(&mut self) -> Result<(), OpError> {
        self.delegate.status.clone()
    }

    fn gc(&mut self) -> Result<(), OpError> {
        self.delegate.gc.clone()
    }
}
