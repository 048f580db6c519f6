//! `ipvlan` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::{IpvlanMode, LinkInfo};

pub(crate) fn create(
    parent: &super::parent::Parent,
    mode: IpvlanMode,
    mtu: Option<u32>,
) -> Result<(super::link::Link, LinkInfo), Error> {
    let reply: LinkInfo = super::ask(postern_types::ops::Ipvlan::Create { parent: *parent, mode, mtu })?;
    Ok((reply.handle, reply))
}

pub(crate) fn find() -> Result<Option<crate::ipvlan::Ipvlan>, Error> {
    let reply: Option<postern_types::IpvlanInfo> = super::ask(postern_types::ops::Ipvlan::Find)?;
    Ok(reply.map(hand_found))
}

fn hand_found(reply: postern_types::IpvlanInfo) -> crate::ipvlan::Ipvlan {
    crate::ipvlan::Ipvlan { link: crate::link::Link(reply.link.handle), attributes: reply.link, mode: reply.mode }
}
