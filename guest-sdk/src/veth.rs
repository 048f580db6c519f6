//! Pairs of virtual Ethernet devices (veth(4)) between the container and the host.

use crate::error::Error;
use crate::link::Link;
use crate::sys::{self, host};
use postern_types::{LinkInfo, Mac};

#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, ops},
};

/// The settings for a new pair. A setter that the plugin doesn't call is not imported.
#[derive(Debug)]
pub struct Options(sys::VethOptions);

impl Default for Options {
    /// Makes options with the kernel's MTU, 1500, and a random, locally administered address.
    fn default() -> Self {
        Self(sys::VethOptions::new())
    }
}

impl Options {
    /// Sets the MTU of both ends, in bytes; `None` changes nothing.
    #[must_use]
    pub fn mtu(self, mtu: Option<u32>) -> Self {
        if let Some(mtu) = mtu {
            host!(component: self.0.set_mtu(mtu), fake: self.0.mtu.set(Some(mtu)));
        }
        self
    }

    /// Sets the link-layer address of the container's end; `None` changes nothing.
    #[must_use]
    pub fn mac(self, mac: Option<Mac>) -> Self {
        if let Some(mac) = mac {
            host!(component: self.0.set_mac(&mac.to_string()), fake: self.0.mac.set(Some(mac)));
        }
        self
    }
}

/// Both ends of the attachment's pair, and their attributes from the moment when they were made or found.
#[derive(Debug)]
pub struct Pair {
    /// The end in the container's namespace, named `CNI_IFNAME`.
    pub container: Link,
    /// Its attributes.
    pub container_attributes: LinkInfo,
    /// The host end, in the host's namespace.
    pub host: HostEnd,
    /// Its attributes.
    pub host_attributes: LinkInfo,
    /// The name of the bridge that the host end is a port of.
    pub bridge: Option<String>,
}

/// The host end of the attachment's pair, or the link in its place ([`crate::bridge::previous_link`]). A plugin can read
/// it, wait for it, and pass it on; only the host configures it.
#[derive(Debug)]
pub struct HostEnd(pub(crate) sys::HostEnd);

/// Makes the pair: the container's end down, the host end up. The host chooses name and address of the host end.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if the container has a link of that name.
pub fn create(options: &Options) -> Result<Pair, Error> {
    host!(
        component: sys::veth::create(&options.0).map(sys::pair).map_err(sys::failure),
        fake: ask!(
            ops::Veth::Create { mtu: options.0.mtu.get(), mac: options.0.mac.get() },
            Reply::Veth(pair) => sys::pair(pair)
        ),
    )
}

/// Finds the pair that an earlier run made. `None` if the link is gone, or is no veth with its other end on this host.
pub fn find() -> Result<Option<Pair>, Error> {
    host!(
        component: Ok(sys::veth::find().map_err(sys::failure)?.map(sys::pair)),
        fake: ask!(ops::Veth::Find, Reply::MaybeVeth(pair) => pair.map(sys::pair)),
    )
}

impl HostEnd {
    /// Reads the link again.
    pub fn attributes(&self) -> Result<LinkInfo, Error> {
        host!(
            component: self.0.attributes().map(sys::link_info).map_err(sys::failure),
            fake: ask!(ops::Link::Attributes { link: self.0 }, Reply::Link(link) => link),
        )
    }

    /// Waits, about 2.5 seconds at most, until the end is operational. Returns its attributes of that moment.
    pub fn wait_running(&self) -> Result<LinkInfo, Error> {
        host!(
            component: self.0.wait_running().map(sys::link_info).map_err(sys::failure),
            fake: ask!(ops::Veth::WaitRunning { host: self.0 }, Reply::Link(link) => link),
        )
    }
}
