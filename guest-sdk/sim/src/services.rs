//! Everything of the simulated host that is no link.

use super::kernel::{Kernel, Place};
use ipnet::IpNet;
use postern_cni::{CniResult, Json, Version};
use postern_types::{ErrorCode, OpError};
use std::net::IpAddr;

/// What the delegate answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Ipam {
    /// To ADD: a result, in JSON. Its addresses are the attachment's own from the beginning, so that CHECK needs no ADD.
    pub result: Result<String, OpError>,
    /// To DEL.
    pub del: Result<(), OpError>,
    /// To CHECK.
    pub check: Result<(), OpError>,
    /// To STATUS.
    pub status: Result<(), OpError>,
    /// To GC.
    pub gc: Result<(), OpError>,
}

impl Default for Ipam {
    fn default() -> Self {
        let unsupported = OpError::new(ErrorCode::Unsupported, "", "no plugin name provided");
        Self { result: Err(unsupported), del: Ok(()), check: Ok(()), status: Ok(()), gc: Ok(()) }
    }
}

impl Ipam {
    /// The attachment's addresses and their gateways.
    pub(super) fn addresses(&self) -> Vec<(IpNet, Option<IpAddr>)> {
        let Ok(text) = &self.result else { return Vec::new() };
        let result = Json::parse(text.as_bytes(), text.len())
            .and_then(|json| CniResult::parse(&json, Version::LATEST.as_str()))
            .unwrap_or_default();
        result.ips.iter().map(|ip| (ip.address, ip.gateway)).collect()
    }
}

/// An address that is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// By this attachment.
    pub own: bool,
    /// Otherwise: by one that the runtime still has.
    pub valid: bool,
    /// The address.
    pub address: IpAddr,
}

impl Kernel {
    /// The attachment's addresses and their gateways, each once.
    pub(super) fn own_addresses(&self) -> Vec<(IpNet, Option<IpAddr>)> {
        let mut own = self.attachment.clone();
        for address in self.ipam.addresses() {
            if !own.contains(&address) {
                own.push(address);
            }
        }
        own
    }

    /// An attachment as a bridge plugin leaves it: a pair, the host's end in a bridge of that name.
    pub fn attached(mut self, bridge: &str) -> Self {
        let master = self.add_link(Place::Host, bridge, "bridge");
        // Both succeed on a kernel that has a namespace and no such link.
        if self.veth_create(None, None).is_ok()
            && let Some(host) = self.host_end().map(|end| end.info.handle)
        {
            let _ = self.attach(master, host, &postern_types::PortSpec::default());
        }
        self
    }
}

/// The first address of a network that can be a host's.
pub(super) fn first_address(net: &IpNet) -> IpAddr {
    after(net.network())
}

pub(super) fn after(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V4(u32::from(ip).saturating_add(1).into()),
        IpAddr::V6(ip) => IpAddr::V6(u128::from(ip).saturating_add(1).into()),
    }
}
