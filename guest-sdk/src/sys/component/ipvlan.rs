//! `ipvlan` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::ipvlan as wit;
use crate::error::Error;
use postern_types::{IpvlanMode, LinkInfo};

pub(crate) fn create(
    parent: &super::parent::Parent,
    mode: IpvlanMode,
    mtu: Option<u32>,
) -> Result<(super::link::Link, LinkInfo), Error> {
    let got = wit::create(parent, wire_mode(mode), mtu).map_err(super::failure)?;
    Ok(got_made(got))
}

pub(crate) fn find() -> Result<Option<crate::ipvlan::Ipvlan>, Error> {
    let got = wit::find().map_err(super::failure)?;
    Ok(got.map(got_found))
}

fn wire_mode(value: IpvlanMode) -> wit::Mode {
    match value {
        IpvlanMode::L2 => wit::Mode::L2,
        IpvlanMode::L3 => wit::Mode::L3,
        IpvlanMode::L3s => wit::Mode::L3s,
    }
}

fn got_mode(got: wit::Mode) -> IpvlanMode {
    match got {
        wit::Mode::L2 => IpvlanMode::L2,
        wit::Mode::L3 => IpvlanMode::L3,
        wit::Mode::L3s => IpvlanMode::L3s,
    }
}

fn got_found(got: wit::Found) -> crate::ipvlan::Ipvlan {
    crate::ipvlan::Ipvlan {
        link: crate::link::Link(got.link),
        attributes: super::link_info(got.attributes),
        mode: got.mode.map(got_mode),
    }
}

fn got_made(got: wit::Made) -> (super::link::Link, LinkInfo) {
    (got.link, super::link_info(got.attributes))
}
