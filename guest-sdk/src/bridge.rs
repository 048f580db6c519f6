//! The host's bridge that policy grants, and this attachment's port on it.

use crate::error::Error;
use crate::sys;
use crate::veth::HostEnd;
use postern_types::{LinkInfo, PortSpec};

/// Settings for a new bridge, and settings to switch on for any bridge. A setter that the plugin doesn't call is not
/// imported.
#[derive(Debug)]
pub struct Options(sys::bridge::Options);

impl Default for Options {
    /// Makes options with the kernel's MTU, no VLAN filtering, and promiscuous mode unchanged.
    fn default() -> Self {
        Self(sys::bridge::Options::new())
    }
}

impl Options {
    /// Sets the MTU in bytes for a new bridge; an existing bridge keeps its MTU. `None` changes nothing.
    #[must_use]
    pub fn mtu(self, mtu: Option<u32>) -> Self {
        if let Some(mtu) = mtu {
            self.0.set_mtu(mtu);
        }
        self
    }

    /// Sets VLAN filtering for a new bridge.
    #[must_use]
    pub fn vlan_filtering(self, on: bool) -> Self {
        self.0.set_vlan_filtering(on);
        self
    }

    /// Switches promiscuous mode on; `false` changes nothing.
    #[must_use]
    pub fn promisc(self, on: bool) -> Self {
        self.0.set_promisc(on);
        self
    }
}

/// A granted bridge.
#[derive(Debug)]
pub struct Bridge(sys::bridge::Bridge);

/// Creates the bridge if it doesn't exist, and sets it up. The bridge belongs to the node: it stays when the attachment
/// goes.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if a link with this name is no bridge.
pub fn ensure(name: &str, options: &Options) -> Result<Bridge, Error> {
    sys::bridge::ensure(name, &options.0).map(Bridge)
}

/// Looks up the bridge; `None` if there is no link with this name.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if a link with this name is no bridge.
pub fn find(name: &str) -> Result<Option<Bridge>, Error> {
    Ok(sys::bridge::find(name)?.map(Bridge))
}

/// Returns the link of the host that an earlier plugin made, to be attached instead of a pair's host end. `None` if
/// this link is missing, or if policy does not grant it. On CHECK, returns the link that joined the bridge.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Denied`] if no record or policy confirms the name in `prevResult`, and
/// [`postern_types::ErrorCode::Exists`] for a link in use.
pub fn previous_link() -> Result<Option<HostEnd>, Error> {
    Ok(sys::bridge::previous_link()?.map(HostEnd))
}

impl Bridge {
    /// Reads the link again.
    pub fn attributes(&self) -> Result<LinkInfo, Error> {
        sys::bridge::attributes(&self.0)
    }

    /// True if the bridge was in promiscuous mode when the handle was made.
    pub fn promisc(&self) -> bool {
        sys::bridge::promisc(&self.0)
    }

    /// Makes the attachment's host end, or its [`previous_link`], a port of the bridge.
    ///
    /// # Errors
    /// Among others [`postern_types::ErrorCode::Unsupported`] for VLANs on a bridge that doesn't filter them, and
    /// [`postern_types::ErrorCode::Exhausted`] if the bridge is full.
    pub fn attach(&self, end: &HostEnd, port: &PortSpec) -> Result<(), Error> {
        sys::bridge::attach(&self.0, &end.0, port)
    }

    /// Puts the gateways of the attachment's addresses on the bridge, or on its VLAN gateway. Returns the VLAN gateway.
    /// The host takes the gateways from the IPAM result: for each address its gateway, or else the first address of its
    /// network.
    ///
    /// # Errors
    /// Among others [`postern_types::ErrorCode::Exists`] if the bridge has another address and `force` is off.
    pub fn ensure_gateways(&self, port: &PortSpec, force: bool) -> Result<Option<LinkInfo>, Error> {
        sys::bridge::ensure_gateways(&self.0, port, force)
    }
}
