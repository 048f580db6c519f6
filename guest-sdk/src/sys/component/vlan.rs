//! `vlan` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::vlan as wit;
use crate::error::Error;
use postern_types::LinkInfo;

pub(crate) fn create(
    parent: &super::parent::Parent,
    id: u16,
    mtu: Option<u32>,
) -> Result<(super::link::Link, LinkInfo), Error> {
    let got = wit::create(parent, id, mtu).map_err(super::failure)?;
    Ok(got_made(got))
}

pub(crate) fn find() -> Result<Option<crate::vlan::Vlan>, Error> {
    let got = wit::find().map_err(super::failure)?;
    Ok(got.map(got_found))
}

fn got_found(got: wit::Found) -> crate::vlan::Vlan {
    crate::vlan::Vlan { link: crate::link::Link(got.link), attributes: super::link_info(got.attributes), id: got.id }
}

fn got_made(got: wit::Made) -> (super::link::Link, LinkInfo) {
    (got.link, super::link_info(got.attributes))
}
