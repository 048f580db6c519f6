//! `link-settings` on the build machine.
//!
//! Written by `cargo xtask surface` from `wit/`, which is to be changed in place of this.

use crate::error::Error;
use postern_types::LinkSettings;

pub(crate) fn change(link: &super::link::Link, settings: &LinkSettings) -> Result<(), Error> {
    super::ask(postern_types::ops::LinkSettings::Change { link: *link, settings: settings.clone() })
}

pub(crate) fn check(link: &super::link::Link, settings: &LinkSettings) -> Result<(), Error> {
    super::ask(postern_types::ops::LinkSettings::Check { link: *link, settings: settings.clone() })
}

pub(crate) fn restore() -> Result<(), Error> {
    super::ask(postern_types::ops::LinkSettings::Restore)
}
