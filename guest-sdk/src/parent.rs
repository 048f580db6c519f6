//! Links that other links are stacked on, and that the operator's configuration names.

use crate::error::Error;
use crate::sys;
use postern_types::LinkInfo;

/// A granted link. A plugin can read this link, and pass it to a function that makes another link on it.
#[derive(Debug)]
pub struct Parent(pub(crate) sys::parent::Parent);

/// Looks up a granted link, on the host or in the container. The empty name is the link of the namespace's default
/// route.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::NotFound`]: the link or the default route is missing.
pub fn find(name: &str, in_container: bool) -> Result<Parent, Error> {
    sys::parent::find(name, in_container).map(Parent)
}

impl Parent {
    /// Reads the link again.
    pub fn attributes(&self) -> Result<LinkInfo, Error> {
        sys::parent::attributes(&self.0)
    }
}
