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

/// How a pair is to be made. What isn't called here isn't imported either.
#[derive(Debug)]
pub struct Options(sys::VethOptions);

impl Default for Options {
    /// The kernel's MTU, 1500, and a random, locally administered address.
    fn default() -> Self {
        Self(sys::VethOptions::new())
    }
}

impl Options {
    /// MTU of both ends, in bytes; `None` leaves it as it is.
    #[must_use]
    pub fn mtu(self, mtu: Option<u32>) -> Self {
        if let Some(mtu) = mtu {
            host!(component: self.0.set_mtu(mtu), fake: self.0.mtu.set(Some(mtu)));
        }
        self
    }

    /// Link-layer address of the container's end; `None` leaves it as it is.
    #[must_use]
    pub fn mac(self, mac: Option<Mac>) -> Self {
        if let Some(mac) = mac {
            host!(component: self.0.set_mac(&mac.to_string()), fake: self.0.mac.set(Some(mac)));
        }
        self
    }
}

/// Both ends of the attachment's pair, and what the kernel said of them when they were made or found.
#[derive(Debug)]
pub struct Pair {
    /// The end in the container's namespace, named `CNI_IFNAME`.
    pub container: Link,
    /// Its attributes.
    pub container_attributes: LinkInfo,
    /// The end in the host's namespace.
    pub host: HostEnd,
    /// Its attributes.
    pub host_attributes: LinkInfo,
    /// Name of the bridge that the host's end is a port of.
    pub bridge: Option<String>,
}

/// The host's end of the attachment's pair. It can be read, waited for, and handed on; the host alone configures it.
#[derive(Debug)]
pub struct HostEnd(pub(crate) sys::HostEnd);

/// Makes the pair: the container's end down, the host's end up. The host chooses the latter's name and address.
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

/// Finds the pair that an earlier run made; `None` if the link is gone or is no veth with its other end on this host.
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

    /// Waits, about 2.5 seconds at most, until the end is operational, and returns its attributes then.
    pub fn wait_running(&self) -> Result<LinkInfo, Error> {
        host!(
            component: self.0.wait_running().map(sys::link_info).map_err(sys::failure),
            fake: ask!(ops::Veth::WaitRunning { host: self.0 }, Reply::Link(link) => link),
        )
    }
}
