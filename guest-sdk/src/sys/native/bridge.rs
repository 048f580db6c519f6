//! `bridge` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::{LinkInfo, PortSpec};
use std::cell::Cell;

/// Collects the values that the plugin sets for a call.
#[derive(Debug)]
pub(crate) struct Options {
    mtu: Cell<Option<u32>>,
    vlan_filtering: Cell<bool>,
    promisc: Cell<bool>,
}

impl Options {
    pub(crate) fn new() -> Self {
        Self { mtu: Cell::default(), vlan_filtering: Cell::default(), promisc: Cell::default() }
    }

    pub(crate) fn set_mtu(&self, value: u32) {
        self.mtu.set(Some(value));
    }

    pub(crate) fn set_vlan_filtering(&self, value: bool) {
        self.vlan_filtering.set(value);
    }

    pub(crate) fn set_promisc(&self, value: bool) {
        self.promisc.set(value);
    }
}

pub(crate) type Bridge = postern_types::BridgeInfo;

pub(crate) fn attributes(bridge: &Bridge) -> Result<LinkInfo, Error> {
    super::ask(postern_types::ops::Link::Attributes { link: bridge.link.handle })
}

pub(crate) fn promisc(bridge: &Bridge) -> bool {
    bridge.promisc
}

pub(crate) fn attach(bridge: &Bridge, host: &super::veth::HostEnd, port: &PortSpec) -> Result<(), Error> {
    super::ask(postern_types::ops::Bridge::Attach { bridge: bridge.link.handle, host: *host, port: port.clone() })
}

pub(crate) fn ensure_gateways(bridge: &Bridge, port: &PortSpec, force: bool) -> Result<Option<LinkInfo>, Error> {
    super::ask(postern_types::ops::Bridge::EnsureGateways { bridge: bridge.link.handle, port: port.clone(), force })
}

pub(crate) fn ensure(name: &str, options: &Options) -> Result<Bridge, Error> {
    super::ask(postern_types::ops::Bridge::Ensure {
        name: name.to_owned(),
        mtu: options.mtu.get(),
        vlan_filtering: options.vlan_filtering.get(),
        promisc: options.promisc.get(),
    })
}

pub(crate) fn find(name: &str) -> Result<Option<Bridge>, Error> {
    super::ask(postern_types::ops::Bridge::Find { name: name.to_owned() })
}

pub(crate) fn previous_link() -> Result<Option<super::veth::HostEnd>, Error> {
    let reply: Option<LinkInfo> = super::ask(postern_types::ops::Bridge::PreviousLink)?;
    Ok(reply.map(|reply| reply.handle))
}
