//! `dummy`, simulated.

use crate::kernel::{Kernel, Place};
use crate::links::{EEXIST, refused};
use postern_types::{Handle, OpError, Reply, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Dummy) -> Result<Reply, OpError> {
    match operation {
        ops::Dummy::Create => {
            let made = kernel.add_inner("dummy")?;
            Ok(Reply::Made(kernel.held(made)?.info.clone()))
        }
    }
}

impl Kernel {
    /// Adds the attachment's own link, of this kind.
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
