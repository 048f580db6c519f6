//! `bridge` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::bridge as wit;
use crate::error::Error;
use postern_types::{LinkInfo, PortSpec};

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

    pub(crate) fn set_vlan_filtering(&self, value: bool) {
        self.0.set_vlan_filtering(value);
    }

    pub(crate) fn set_promisc(&self, value: bool) {
        self.0.set_promisc(value);
    }
}

pub(crate) use wit::Bridge;

pub(crate) fn attributes(bridge: &Bridge) -> Result<LinkInfo, Error> {
    let got = bridge.attributes().map_err(super::failure)?;
    Ok(super::link_info(got))
}

pub(crate) fn promisc(bridge: &Bridge) -> bool {
    bridge.promisc()
}

pub(crate) fn attach(bridge: &Bridge, host: &super::veth::HostEnd, port: &PortSpec) -> Result<(), Error> {
    bridge.attach(host, &make_port(port)).map_err(super::failure)
}

pub(crate) fn ensure_gateways(bridge: &Bridge, port: &PortSpec, force: bool) -> Result<Option<LinkInfo>, Error> {
    let got = bridge.ensure_gateways(&make_port(port), force).map_err(super::failure)?;
    Ok(got.map(super::link_info))
}

pub(crate) fn ensure(name: &str, options: &Options) -> Result<Bridge, Error> {
    wit::ensure(name, &options.0).map_err(super::failure)
}

pub(crate) fn find(name: &str) -> Result<Option<Bridge>, Error> {
    wit::find(name).map_err(super::failure)
}

pub(crate) fn previous_link() -> Result<Option<super::veth::HostEnd>, Error> {
    wit::previous_link().map_err(super::failure)
}

fn make_port(value: &PortSpec) -> wit::Port {
    let made = wit::Port::new();
    if value.hairpin {
        made.set_hairpin(true);
    }
    if value.isolated {
        made.set_isolated(true);
    }
    if let Some(value) = value.vlan {
        made.set_vlan(value);
    }
    if !value.trunk.is_empty() {
        made.set_trunk(&value.trunk);
    }
    if value.preserve_default_vlan {
        made.set_preserve_default_vlan(true);
    }
    made
}
