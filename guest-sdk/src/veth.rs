//! Pairs of virtual Ethernet devices (veth(4)) between the container and the host.

use crate::error::Error;
use crate::link::Link;
use crate::sys;
use postern_types::{LinkInfo, Mac};

/// The settings for a new pair. A setter that the plugin doesn't call is not imported.
#[derive(Debug)]
pub struct Options(sys::veth::Options);

impl Default for Options {
    /// Makes options with the kernel's MTU, 1500, and a random, locally administered address.
    fn default() -> Self {
        Self(sys::veth::Options::new())
    }
}

impl Options {
    /// Sets the MTU of both ends, in bytes; `None` changes nothing.
    #[must_use]
    pub fn mtu(self, mtu: Option<u32>) -> Self {
        if let Some(mtu) = mtu {
            self.0.set_mtu(mtu);
        }
        self
    }

    /// Sets the link-layer address of the container's end; `None` changes nothing.
    #[must_use]
    pub fn mac(self, mac: Option<Mac>) -> Self {
        if let Some(mac) = mac {
            self.0.set_mac(mac);
        }
        self
    }
}

/// Both ends of the attachment's pair, and their attributes from the moment when they were made or found.
#[derive(Debug)]
pub struct Pair {
    /// The end in the container's namespace, named `CNI_IFNAME`.
    pub container: Link,
    /// The attributes of the container's end.
    pub container_attributes: LinkInfo,
    /// The host end, in the host's namespace.
    pub host: HostEnd,
    /// The attributes of the host end.
    pub host_attributes: LinkInfo,
    /// The name of the bridge that the host end is a port of.
    pub bridge: Option<String>,
}

/// The host end of the attachment's pair, or the link in place of the host end ([`crate::bridge::previous_link`]). A
/// plugin can read this end, wait for it, and pass it on; only the host configures it.
#[derive(Debug)]
pub struct HostEnd(pub(crate) sys::veth::HostEnd);

/// Makes the pair: the container's end down, the host end up. The host chooses name and address of the host end.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`] if the container has a link with this name.
pub fn create(options: &Options) -> Result<Pair, Error> {
    sys::veth::create(&options.0)
}

/// Finds the pair that an earlier run made. `None` if the container's link is gone, or is no veth whose other end is on
/// this host.
pub fn find() -> Result<Option<Pair>, Error> {
    sys::veth::find()
}

impl HostEnd {
    /// Reads the link again.
    pub fn attributes(&self) -> Result<LinkInfo, Error> {
        sys::veth::attributes(&self.0)
    }

    /// Waits at most about 2.5 seconds until the end is operational. Returns the end's attributes of this moment.
    pub fn wait_running(&self) -> Result<LinkInfo, Error> {
        sys::veth::wait_running(&self.0)
    }
}
