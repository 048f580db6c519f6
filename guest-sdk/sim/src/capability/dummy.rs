//! `dummy`, simulated.

use crate::kernel::{Kernel, Place};
use crate::links::{EEXIST, refused};
use postern_types::{Handle, LinkInfo, OpError, host};

impl host::Dummy for Kernel {
    fn create(&mut self) -> Result<LinkInfo, OpError> {
        let made = self.add_inner("dummy")?;
        Ok(self.held(made)?.info.clone())
    }
}

impl Kernel {
    /// Adds the attachment's own link, which is of the given kind.
    pub(super) fn add_inner(&mut self, kind: &str) -> Result<Handle, OpError> {
        self.namespace()?;
        let name = self.ifname.clone();
        if self.own().is_some() {
            let text = format!("failed to create {kind}: the container has \"{name}\" already");
            return Err(refused(EEXIST, &name, &text));
        }
        Ok(self.add_link(Place::Container, &name, kind))
    }
}
