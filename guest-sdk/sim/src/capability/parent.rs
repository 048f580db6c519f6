//! `parent`, simulated.

use crate::kernel::{Kernel, Place};
use postern_types::{ErrorCode, LinkInfo, OpError, host};

impl host::Parent for Kernel {
    fn find(&mut self, name: &str, in_container: bool) -> Result<LinkInfo, OpError> {
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
        let link =
            Kernel::find(self, place, name).ok_or_else(|| OpError::new(ErrorCode::NotFound, name, "Link not found"))?;
        Ok(link.info.clone())
    }
}
