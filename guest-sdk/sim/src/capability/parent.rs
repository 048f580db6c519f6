//! `parent`, simulated.

use crate::kernel::{Kernel, Place};
use postern_types::{ErrorCode, OpError, Reply, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Parent) -> Result<Reply, OpError> {
    match operation {
        ops::Parent::Find { name, in_container } => kernel.parent(name, *in_container),
    }
}

impl Kernel {
    fn parent(&self, name: &str, in_container: bool) -> Result<Reply, OpError> {
        let place = if in_container { Place::Container } else { Place::Host };
        if in_container {
            self.namespace()?;
        }
        let default = if in_container { &self.default_link_inside } else { &self.default_link };
        let name = match (name, default) {
            ("", Some(default)) => default,
            ("", None) => {
                let message = "no default route interface found";
                return Err(OpError::new(ErrorCode::NotFound, "default route", message));
            }
            (name, _) => name,
        };
        let link = self.find(place, name).ok_or_else(|| OpError::new(ErrorCode::NotFound, name, "Link not found"))?;
        Ok(Reply::Parent(link.info.clone()))
    }
}
