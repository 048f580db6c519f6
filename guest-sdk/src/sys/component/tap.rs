//! `tap` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::tap as wit;
use crate::error::Error;
use postern_types::{LinkInfo, TapSettings};

pub(crate) fn create(options: &TapSettings) -> Result<(super::link::Link, LinkInfo), Error> {
    let got = wit::create(&make_options(options)).map_err(super::failure)?;
    Ok(got_made(got))
}

pub(crate) fn join(link: &super::link::Link, bridge: &str) -> Result<(), Error> {
    wit::join(link, bridge).map_err(super::failure)
}

fn make_options(value: &TapSettings) -> wit::Options {
    let made = wit::Options::new();
    if let Some(value) = value.mtu {
        made.set_mtu(value);
    }
    if let Some(value) = value.mac {
        made.set_mac(&value.to_string());
    }
    if let Some(value) = value.owner {
        made.set_owner(value);
    }
    if let Some(value) = value.group {
        made.set_group(value);
    }
    if value.multi_queue {
        made.set_multi_queue();
    }
    if value.packet_information {
        made.set_packet_information();
    }
    if value.vnet_header {
        made.set_vnet_header();
    }
    if let Some(value) = &value.selinux_context {
        made.set_selinux_context(value);
    }
    made
}

fn got_made(got: wit::Made) -> (super::link::Link, LinkInfo) {
    (got.link, super::link_info(got.attributes))
}
