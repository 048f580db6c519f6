//! `vlan` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::LinkInfo;

pub(crate) fn create(
    parent: &super::parent::Parent,
    id: u16,
    mtu: Option<u32>,
) -> Result<(super::link::Link, LinkInfo), Error> {
    let reply: LinkInfo = super::ask(postern_types::ops::Vlan::Create { parent: *parent, id, mtu })?;
    Ok((reply.handle, reply))
}

pub(crate) fn find() -> Result<Option<crate::vlan::Vlan>, Error> {
    let reply: Option<postern_types::VlanInfo> = super::ask(postern_types::ops::Vlan::Find)?;
    Ok(reply.map(hand_found))
}

fn hand_found(reply: postern_types::VlanInfo) -> crate::vlan::Vlan {
    crate::vlan::Vlan { link: crate::link::Link(reply.link.handle), attributes: reply.link, id: reply.id }
}
