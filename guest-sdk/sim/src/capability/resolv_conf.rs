//! `resolv-conf`, simulated.

use crate::kernel::Kernel;
use postern_types::{Dns, ErrorCode, OpError, host};

impl host::ResolvConf for Kernel {
    fn read(&mut self) -> Result<Dns, OpError> {
        let missing = || OpError::new(ErrorCode::NotFound, "resolv.conf", "no such file or directory");
        self.resolv_conf.clone().ok_or_else(missing)
    }
}
