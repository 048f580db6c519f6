//! `bandwidth`, simulated.

use crate::kernel::Kernel;
use postern_types::{ErrorCode, Handle, LinkInfo, Mac, OpError, RateLimit, host};

impl host::Bandwidth for Kernel {
    fn limit(&mut self, ingress: Option<RateLimit>, egress: Option<RateLimit>) -> Result<Option<LinkInfo>, OpError> {
        self.limits = (ingress, egress);
        let name = self.ifb_name.as_deref().unwrap_or("bwpfake");
        Ok(egress.map(|_| LinkInfo {
            handle: Handle::MAX,
            name: name.to_owned(),
            mac: Some(Mac([2, 0, 0, 0, 0, 0xbb])),
            mtu: 1500,
            kind: "ifb".to_owned(),
            up: true,
            running: true,
        }))
    }

    fn check(&mut self, ingress: Option<RateLimit>, egress: Option<RateLimit>) -> Result<(), OpError> {
        match self.limits == (ingress, egress) {
            true => Ok(()),
            false => Err(OpError::new(ErrorCode::Mismatch, "veth0", "Rate doesn't match")),
        }
    }

    fn remove(&mut self) -> Result<(), OpError> {
        self.limits = (None, None);
        Ok(())
    }
}
