//! `link-sysctl`, simulated.

use crate::kernel::Kernel;
use postern_types::{ErrorCode, Handle, LinkSysctl, OpError, host};

impl host::LinkSysctl for Kernel {
    fn set(&mut self, link: Handle, key: LinkSysctl, value: bool) -> Result<(), OpError> {
        if !self.ipv6 && key != LinkSysctl::ArpNotify {
            return Err(OpError::new(ErrorCode::NotFound, format!("{key:?}"), "no such key"));
        }
        self.held_mut(link)?.sysctls.push((key, value));
        Ok(())
    }
}
