//! Links that others are stacked on, and that the operator's configuration names.

use crate::error::Error;
use crate::sys;
use postern_types::LinkInfo;

/// A granted link. It can be read, and handed to what makes a link on it.
#[derive(Debug)]
pub struct Parent(pub(crate) sys::parent::Parent);

/// Looks a granted link up, on the host or in the container. The empty name is the link of the default route there.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::NotFound`]: there is no such link, or no default route.
pub fn find(name: &str, in_container: bool) -> Result<Parent, Error> {
    sys::parent::find(name, in_container).map(Parent)
}

impl Parent {
    /// Reads the link again.
    pub fn attributes(&self) -> Result<LinkInfo, Error> {
        sys::parent::attributes(&self.0)
    }
}
