//! The bridge of the host that policy grants, and this attachment's port on it.

use crate::sys::{self, host};
use crate::veth::HostEnd;
use postern_types::{LinkInfo, OpError, PortSpec, VlanId};

#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Operation, Reply},
};

/// How a bridge is to be made, or what is to be switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// MTU in bytes when it is created; an existing bridge keeps its own.
    pub mtu: Option<u32>,
    /// VLAN filtering when it is created.
    pub vlan_filtering: bool,
    /// Promiscuous mode: switched on, never off.
    pub promisc: bool,
}

/// A granted bridge.
#[derive(Debug)]
pub struct Bridge(sys::Bridge);

/// Creates the bridge if it doesn't exist, and sets it up. It is the node's: nothing removes it with the attachment.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if a link of that name is no bridge.
pub fn ensure(name: &str, options: &Options) -> Result<Bridge, OpError> {
    host!(
        component: {
            let spec = sys::bridge::Options::new();
            if let Some(mtu) = options.mtu {
                spec.set_mtu(mtu);
            }
            if options.vlan_filtering {
                spec.set_vlan_filtering(true);
            }
            if options.promisc {
                spec.set_promisc(true);
            }
            sys::bridge::ensure(name, &spec).map(Bridge).map_err(sys::failure)
        },
        fake: ask!(
            Operation::BridgeEnsure {
                name: name.to_owned(),
                mtu: options.mtu,
                vlan_filtering: options.vlan_filtering,
                promisc: options.promisc,
            },
            Reply::Bridge(bridge) => Bridge(bridge)
        ),
    )
}

/// Looks at the bridge; `None` if there is no link of that name.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if a link of that name is no bridge.
pub fn find(name: &str) -> Result<Option<Bridge>, OpError> {
    host!(
        component: Ok(sys::bridge::find(name).map_err(sys::failure)?.map(Bridge)),
        fake: ask!(
            Operation::BridgeFind { name: name.to_owned() },
            Reply::MaybeBridge(bridge) => bridge.map(Bridge)
        ),
    )
}

impl Bridge {
    /// Reads the link again.
    pub fn attributes(&self) -> Result<LinkInfo, OpError> {
        host!(
            component: self.0.attributes().map(sys::link_info).map_err(sys::failure),
            fake: ask!(Operation::LinkAttributes { link: self.0.link.handle }, Reply::Link(link) => link),
        )
    }

    /// Whether the bridge was in promiscuous mode when the handle was given out.
    pub fn promisc(&self) -> bool {
        host!(
            component: self.0.promisc(),
            fake: self.0.promisc,
        )
    }

    /// Makes the attachment's host end a port of the bridge.
    ///
    /// # Errors
    /// Among others [`postern_types::ErrorCode::Unsupported`] for VLANs on a bridge that doesn't filter them, and
    /// [`postern_types::ErrorCode::Exhausted`] if the bridge is full.
    pub fn attach(&self, end: &HostEnd, port: &PortSpec) -> Result<(), OpError> {
        host!(
            component: {
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
                self.0.attach(&end.0, &spec).map_err(sys::failure)
            },
            fake: sys::done(&Operation::BridgeAttach {
                bridge: self.0.link.handle,
                host: end.0,
                port: port.clone(),
            }),
        )
    }

    /// Puts the gateways of the attachment's addresses on the bridge, or on its VLAN gateway, which is returned. The
    /// host derives them from the IPAM result: the result's gateway, or else the first address of the network.
    ///
    /// # Errors
    /// Among others [`postern_types::ErrorCode::Exists`] if another address is in the way and `force` is off.
    pub fn ensure_gateways(&self, vlan: Option<VlanId>, force: bool) -> Result<Option<LinkInfo>, OpError> {
        host!(
            component: Ok(self.0.ensure_gateways(vlan, force).map_err(sys::failure)?.map(sys::link_info)),
            fake: ask!(
                Operation::BridgeEnsureGateways { bridge: self.0.link.handle, vlan, force },
                Reply::MaybeLink(link) => link
            ),
        )
    }
}
