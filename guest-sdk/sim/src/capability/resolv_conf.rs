//! `resolv-conf`, simulated.

use crate::kernel::Kernel;
use postern_types::{ErrorCode, OpError, Reply, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::ResolvConf) -> Result<Reply, OpError> {
    match operation {
        ops::ResolvConf::Read => kernel.read_resolv_conf(),
    }
}

impl Kernel {
    fn read_resolv_conf(&self) -> Result<Reply, OpError> {
        let missing = || OpError::new(ErrorCode::NotFound, "resolv.conf", "no such file or directory");
        self.resolv_conf.clone().map(Reply::Dns).ok_or_else(missing)
    }
}
