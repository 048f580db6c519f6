//! `link-settings` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

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
