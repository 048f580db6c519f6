//! Attributes of the attachment's own link. The host puts back what was changed, on a failed ADD and on DEL.

use crate::error::Error;
use crate::link::Link;
use crate::sys::{self, host};
use postern_types::LinkSettings;

#[cfg(not(target_arch = "wasm32"))]
use postern_types::ops;

/// Changes the attributes that are not `None`.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::InvalidArgument`]: no link can have such an attribute.
pub fn change(link: &Link, settings: &LinkSettings) -> Result<(), Error> {
    host!(
        component: sys::link_settings::change(&link.0, &sys::settings(settings)).map_err(sys::failure),
        fake: sys::done(ops::LinkSettings::Change { link: link.0, settings: settings.clone() }),
    )
}

/// Compares the attributes that are not `None` with those of the kernel.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check(link: &Link, settings: &LinkSettings) -> Result<(), Error> {
    host!(
        component: sys::link_settings::check(&link.0, &sys::settings(settings)).map_err(sys::failure),
        fake: sys::done(ops::LinkSettings::Check { link: link.0, settings: settings.clone() }),
    )
}

/// Puts back what this plugin changed. It is success if there is nothing to put back.
pub fn restore() -> Result<(), Error> {
    host!(
        component: sys::link_settings::restore().map_err(sys::failure),
        fake: sys::done(ops::LinkSettings::Restore),
    )
}
