//! `veth` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::veth as wit;
use crate::error::Error;
use postern_types::{LinkInfo, Mac};

/// Collects the values that the plugin sets for a call.
#[derive(Debug)]
pub(crate) struct Options(pub(super) wit::Options);

impl Options {
    pub(crate) fn new() -> Self {
        Self(wit::Options::new())
    }

    pub(crate) fn set_mtu(&self, value: u32) {
        self.0.set_mtu(value);
    }

    pub(crate) fn set_mac(&self, value: Mac) {
        self.0.set_mac(&value.to_string());
    }
}

pub(crate) use wit::HostEnd;

pub(crate) fn attributes(host_end: &HostEnd) -> Result<LinkInfo, Error> {
    let got = host_end.attributes().map_err(super::failure)?;
    Ok(super::link_info(got))
}

pub(crate) fn wait_running(host_end: &HostEnd) -> Result<LinkInfo, Error> {
    let got = host_end.wait_running().map_err(super::failure)?;
    Ok(super::link_info(got))
}

pub(crate) fn create(options: &Options) -> Result<crate::veth::Pair, Error> {
    let got = wit::create(&options.0).map_err(super::failure)?;
    Ok(got_pair(got))
}

pub(crate) fn find() -> Result<Option<crate::veth::Pair>, Error> {
    let got = wit::find().map_err(super::failure)?;
    Ok(got.map(got_pair))
}

fn got_pair(got: wit::Pair) -> crate::veth::Pair {
    crate::veth::Pair {
        container: crate::link::Link(got.container),
        container_attributes: super::link_info(got.container_attributes),
        host: crate::veth::HostEnd(got.host),
        host_attributes: super::link_info(got.host_attributes),
        bridge: got.bridge,
    }
}
