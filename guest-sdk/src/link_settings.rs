//! Attributes of the attachment's own link. The host restores changed attributes after a failed ADD and on DEL.

use crate::error::Error;
use crate::link::Link;
use crate::sys;
use postern_types::LinkSettings;

/// Changes the attributes that are not `None`.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::InvalidArgument`]: no link can have this attribute.
pub fn change(link: &Link, settings: &LinkSettings) -> Result<(), Error> {
    sys::link_settings::change(&link.0, settings)
}

/// Compares the attributes that are not `None` with the kernel's attributes.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check(link: &Link, settings: &LinkSettings) -> Result<(), Error> {
    sys::link_settings::check(&link.0, settings)
}

/// Restores the attributes that this plugin changed. The call succeeds if there is nothing to restore.
pub fn restore() -> Result<(), Error> {
    sys::link_settings::restore()
}
