//! `veth` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::{LinkInfo, Mac};
use std::cell::Cell;

/// Collects the values that the plugin sets for a call.
#[derive(Debug)]
pub(crate) struct Options {
    mtu: Cell<Option<u32>>,
    mac: Cell<Option<Mac>>,
}

impl Options {
    pub(crate) fn new() -> Self {
        Self { mtu: Cell::default(), mac: Cell::default() }
    }

    pub(crate) fn set_mtu(&self, value: u32) {
        self.mtu.set(Some(value));
    }

    pub(crate) fn set_mac(&self, value: Mac) {
        self.mac.set(Some(value));
    }
}

pub(crate) type HostEnd = postern_types::Handle;

pub(crate) fn attributes(host_end: &HostEnd) -> Result<LinkInfo, Error> {
    super::ask(postern_types::ops::Link::Attributes { link: *host_end })
}

pub(crate) fn wait_running(host_end: &HostEnd) -> Result<LinkInfo, Error> {
    super::ask(postern_types::ops::Veth::WaitRunning { host: *host_end })
}

pub(crate) fn create(options: &Options) -> Result<crate::veth::Pair, Error> {
    let reply: postern_types::VethPair =
        super::ask(postern_types::ops::Veth::Create { mtu: options.mtu.get(), mac: options.mac.get() })?;
    Ok(hand_pair(reply))
}

pub(crate) fn find() -> Result<Option<crate::veth::Pair>, Error> {
    let reply: Option<postern_types::VethPair> = super::ask(postern_types::ops::Veth::Find)?;
    Ok(reply.map(hand_pair))
}

fn hand_pair(reply: postern_types::VethPair) -> crate::veth::Pair {
    crate::veth::Pair {
        container: crate::link::Link(reply.container.handle),
        container_attributes: reply.container,
        host: crate::veth::HostEnd(reply.host.handle),
        host_attributes: reply.host,
        bridge: reply.bridge,
    }
}
