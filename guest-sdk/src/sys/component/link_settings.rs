//! `link-settings` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::link_settings as wit;
use crate::error::Error;
use postern_types::LinkSettings;

pub(crate) fn change(link: &super::link::Link, settings: &LinkSettings) -> Result<(), Error> {
    wit::change(link, &make_settings(settings)).map_err(super::failure)
}

pub(crate) fn check(link: &super::link::Link, settings: &LinkSettings) -> Result<(), Error> {
    wit::check(link, &make_settings(settings)).map_err(super::failure)
}

pub(crate) fn restore() -> Result<(), Error> {
    wit::restore().map_err(super::failure)
}

fn make_settings(value: &LinkSettings) -> wit::Settings {
    let made = wit::Settings::new();
    if let Some(value) = value.mac {
        made.set_mac(&value.to_string());
    }
    if let Some(value) = value.mtu {
        made.set_mtu(value);
    }
    if let Some(value) = value.promisc {
        made.set_promisc(value);
    }
    if let Some(value) = value.allmulti {
        made.set_allmulti(value);
    }
    if let Some(value) = value.tx_queue_length {
        made.set_tx_queue_length(value);
    }
    made
}
