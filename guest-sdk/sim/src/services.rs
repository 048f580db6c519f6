//! The parts of the simulated host other than links.

use super::kernel::{Kernel, Place};
use ipnet::IpNet;
use postern_cni::{CniResult, Json, Version};
use postern_types::{ErrorCode, OpError, PortSpec, host};
use std::net::IpAddr;

/// The answers of the delegate.
#[derive(Clone, Debug, PartialEq)]
pub struct Ipam {
    /// The answer to ADD: a result, in JSON. The result's addresses are the attachment's own from the beginning, so
    /// that CHECK needs no ADD.
    pub result: Result<String, OpError>,
    /// The answer to DEL.
    pub del: Result<(), OpError>,
    /// The answer to CHECK.
    pub check: Result<(), OpError>,
    /// The answer to STATUS.
    pub status: Result<(), OpError>,
    /// The answer to GC.
    pub gc: Result<(), OpError>,
}

impl Default for Ipam {
    fn default() -> Self {
        let unnamed = OpError::new(ErrorCode::InvalidArgument, "", "no plugin name provided");
        Self { result: Err(unnamed), del: Ok(()), check: Ok(()), status: Ok(()), gc: Ok(()) }
    }
}

impl Ipam {
    /// Returns the addresses in the answer to ADD, each with its gateway.
    pub(super) fn addresses(&self) -> Vec<(IpNet, Option<IpAddr>)> {
        let Ok(text) = &self.result else { return Vec::new() };
        let result = Json::parse(text.as_bytes(), text.len())
            .and_then(|json| CniResult::parse(&json, Version::LATEST.as_str()))
            .unwrap_or_default();
        result.ips.iter().map(|ip| (ip.address, ip.gateway)).collect()
    }
}

/// A taken address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// True if this attachment has the address.
    pub own: bool,
    /// For another attachment's address: true if the runtime still has this other attachment.
    pub valid: bool,
    /// The address.
    pub address: IpAddr,
}

impl Kernel {
    /// Returns the attachment's addresses and their gateways, each once.
    pub(super) fn own_addresses(&self) -> Vec<(IpNet, Option<IpAddr>)> {
        let mut own = self.attachment.clone();
        for address in self.ipam.addresses() {
            if !own.contains(&address) {
                own.push(address);
            }
        }
        own
    }

    /// Makes an attachment as a bridge plugin does: a pair, with the host end in the bridge `bridge`.
    pub fn attached(mut self, bridge: &str) -> Self {
        let master = self.add_link(Place::Host, bridge, "bridge");
        // Both calls succeed if the container has a namespace, and no link `CNI_IFNAME` yet.
        if host::Veth::create(&mut self, None, None).is_ok()
            && let Some(end) = self.host_end().map(|end| end.info.handle)
        {
            let _ = host::Bridge::attach(&mut self, master, end, &PortSpec::default());
        }
        self
    }
}

/// Returns the first host address of a network.
pub(super) fn first_address(net: &IpNet) -> IpAddr {
    after(net.network())
}

pub(super) fn after(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V4(u32::from(ip).saturating_add(1).into()),
        IpAddr::V6(ip) => IpAddr::V6(u128::from(ip).saturating_add(1).into()),
    }
}
