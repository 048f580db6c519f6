//! The host's bridge that policy grants, and this attachment's port on it.

use crate::error::Error;
use crate::sys::{self, host};
use crate::veth::HostEnd;
use postern_types::{LinkInfo, PortSpec};

#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, ops},
};

/// The settings for a new bridge, and those to switch on. A setter that the plugin doesn't call is not imported.
#[derive(Debug)]
pub struct Options(sys::BridgeOptions);

impl Default for Options {
    /// Makes options with the kernel's MTU, no VLAN filtering, and promiscuous mode unchanged.
    fn default() -> Self {
        Self(sys::BridgeOptions::new())
    }
}

impl Options {
    /// Sets the MTU in bytes for a new bridge; an existing one keeps its own. `None` changes nothing.
    #[must_use]
    pub fn mtu(self, mtu: Option<u32>) -> Self {
        if let Some(mtu) = mtu {
            host!(component: self.0.set_mtu(mtu), fake: self.0.mtu.set(Some(mtu)));
        }
        self
    }

    /// Sets VLAN filtering for a new bridge.
    #[must_use]
    pub fn vlan_filtering(self, on: bool) -> Self {
        host!(component: self.0.set_vlan_filtering(on), fake: self.0.vlan_filtering.set(on));
        self
    }

    /// Switches promiscuous mode on; `false` changes nothing.
    #[must_use]
    pub fn promisc(self, on: bool) -> Self {
        host!(component: self.0.set_promisc(on), fake: self.0.promisc.set(on));
        self
    }
}

/// A granted bridge.
#[derive(Debug)]
pub struct Bridge(sys::Bridge);

/// Creates the bridge if it doesn't exist, and sets it up. It belongs to the node: it stays when the attachment goes.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if a link of that name is no bridge.
pub fn ensure(name: &str, options: &Options) -> Result<Bridge, Error> {
    host!(
        component: sys::bridge::ensure(name, &options.0).map(Bridge).map_err(sys::failure),
        fake: ask!(
            ops::Bridge::Ensure {
                name: name.to_owned(),
                mtu: options.0.mtu.get(),
                vlan_filtering: options.0.vlan_filtering.get(),
                promisc: options.0.promisc.get(),
            },
            Reply::Bridge(bridge) => Bridge(bridge)
        ),
    )
}

/// Looks up the bridge; `None` if there is no link of that name.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if a link of that name is no bridge.
pub fn find(name: &str) -> Result<Option<Bridge>, Error> {
    host!(
        component: Ok(sys::bridge::find(name).map_err(sys::failure)?.map(Bridge)),
        fake: ask!(
            ops::Bridge::Find { name: name.to_owned() },
            Reply::MaybeBridge(bridge) => bridge.map(Bridge)
        ),
    )
}

/// The link of the host that a plugin before made, to be attached instead of a pair's host end; `None` if there is none, or
/// policy grants none. On CHECK it is the one that joined.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Denied`] if nobody answers for the name in `prevResult`, and
/// [`postern_types::ErrorCode::Exists`] for a link that somebody has.
pub fn previous_link() -> Result<Option<HostEnd>, Error> {
    host!(
        component: Ok(sys::bridge::previous_link().map_err(sys::failure)?.map(HostEnd)),
        fake: ask!(
            ops::Bridge::PreviousLink,
            Reply::MaybeLink(link) => link.map(|link| HostEnd(link.handle))
        ),
    )
}

impl Bridge {
    /// Reads the link again.
    pub fn attributes(&self) -> Result<LinkInfo, Error> {
        host!(
            component: self.0.attributes().map(sys::link_info).map_err(sys::failure),
            fake: ask!(ops::Link::Attributes { link: self.0.link.handle }, Reply::Link(link) => link),
        )
    }

    /// True if the bridge was in promiscuous mode when the handle was made.
    pub fn promisc(&self) -> bool {
        host!(
            component: self.0.promisc(),
            fake: self.0.promisc,
        )
    }

    /// Makes the attachment's host end, or its [`previous_link`], a port of the bridge.
    ///
    /// # Errors
    /// Among others [`postern_types::ErrorCode::Unsupported`] for VLANs on a bridge that doesn't filter them, and
    /// [`postern_types::ErrorCode::Exhausted`] if the bridge is full.
    pub fn attach(&self, end: &HostEnd, port: &PortSpec) -> Result<(), Error> {
        host!(
            component: self.0.attach(&end.0, &port_resource(port)).map_err(sys::failure),
            fake: sys::done(ops::Bridge::Attach {
                bridge: self.0.link.handle,
                host: end.0,
                port: port.clone(),
            }),
        )
    }

    /// Puts the gateways of the attachment's addresses on the bridge, or on its VLAN gateway, which is returned. The
    /// host takes them from the IPAM result: the result's gateway, or else the first address of the network.
    ///
    /// # Errors
    /// Among others [`postern_types::ErrorCode::Exists`] if the bridge has another address and `force` is off.
    pub fn ensure_gateways(&self, port: &PortSpec, force: bool) -> Result<Option<LinkInfo>, Error> {
        host!(
            component: Ok(self.0.ensure_gateways(&port_resource(port), force).map_err(sys::failure)?.map(sys::link_info)),
            fake: ask!(
                ops::Bridge::EnsureGateways { bridge: self.0.link.handle, port: port.clone(), force },
                Reply::MaybeLink(link) => link
            ),
        )
    }
}

#[cfg(target_arch = "wasm32")]
fn port_resource(port: &PortSpec) -> sys::bridge::Port {
    let spec = sys::bridge::Port::new();
    if port.hairpin {
        spec.set_hairpin(true);
    }
    if port.isolated {
        spec.set_isolated(true);
    }
    if let Some(vlan) = port.vlan {
        spec.set_vlan(vlan);
    }
    if !port.trunk.is_empty() {
        spec.set_trunk(&port.trunk);
    }
    if port.preserve_default_vlan {
        spec.set_preserve_default_vlan(true);
    }
    spec
}
