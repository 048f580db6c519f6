//! `link-sysctl`, simulated.

use crate::kernel::Kernel;
use postern_types::{ErrorCode, Handle, LinkSysctl, OpError, Reply, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::LinkSysctl) -> Result<Reply, OpError> {
    match operation {
        ops::LinkSysctl::Set { link, key, value } => kernel.sysctl(*link, *key, *value),
    }
}

impl Kernel {
    fn sysctl(&mut self, handle: Handle, key: LinkSysctl, value: bool) -> Result<Reply, OpError> {
        if !self.ipv6 && key != LinkSysctl::ArpNotify {
            return Err(OpError::new(ErrorCode::NotFound, format!("{key:?}"), "no such key"));
        }
        self.held_mut(handle)?.sysctls.push((key, value));
        Ok(Reply::Done)
    }
}
