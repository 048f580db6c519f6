//! The attachment's own state: its addresses, its link as this run made or found it, and the settings for its packets.

use ipnet::IpNet;
use postern_cni::CniResult;
use postern_state::DataPath;
use postern_types::{ErrorCode, Mac, OpError};
use std::net::IpAddr;

/// The attachment's own state in one run.
#[derive(Debug, Default)]
pub struct AttachmentState {
    pub addresses: Vec<OwnAddress>,
    /// The address of the container's end of the pair that this run made.
    pub container_mac: Option<Mac>,
    /// The links of the container that a guest of this run deleted, by their indices.
    pub deleted: Vec<u32>,
    /// The index of the bridge that the attachment's host end joined in this run.
    pub joined: Option<u32>,
    /// The settings that this run made for the attachment's packets, for its record.
    pub path: DataPath,
}

impl AttachmentState {
    /// True if an address with this prefix length belongs to the attachment.
    pub fn owns(&self, net: &IpNet) -> bool {
        self.addresses.iter().any(|own| own.net == *net)
    }
}

/// An address that belongs to this attachment: IPAM gave it, or `prevResult` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// The address with prefix length.
    pub net: IpNet,
    /// The gateway of the address, if the address has one.
    pub gateway: Option<IpAddr>,
}

impl OwnAddress {
    /// Returns the gateway, or else the first address of the network (specification, "gateway"; native bridge and ptp).
    pub fn gateway_or_first(&self) -> Option<IpAddr> {
        self.gateway.or_else(|| first_address(&self.net))
    }

    /// True without a gateway, or if the gateway has the IP version of the address.
    pub fn is_one_family(&self) -> bool {
        self.gateway.is_none_or(|gateway| gateway.is_ipv4() == self.net.addr().is_ipv4())
    }

    /// Returns the gateway as an address of a bridge, with the address's prefix length. The gateway must be in the
    /// network of the address, because the node gets a route to that network.
    pub(crate) fn gateway_on_bridge(&self) -> Result<IpNet, OpError> {
        let gateway = self.gateway_or_first().filter(|gateway| self.net.contains(gateway));
        let net = gateway.and_then(|gateway| IpNet::new(gateway, self.net.prefix_len()).ok());
        net.ok_or_else(|| {
            let gateway = self.gateway_or_first().map_or("none".to_owned(), |gateway| gateway.to_string());
            let message = format!(
                "failed to set bridge addr: the gateway of {} would be {gateway}, which does not lie in its network",
                self.net
            );
            OpError::new(ErrorCode::InvalidArgument, self.net.to_string(), message)
                .hint("have IPAM give a gateway that lies in the network of its address, or leave isGateway out")
        })
    }

    /// True if a result may have this gateway for the address: the address's own gateway, or none.
    pub fn agrees_with(&self, gateway: Option<IpAddr>) -> bool {
        gateway.is_none() || gateway == self.gateway_or_first()
    }
}

/// Takes the addresses of a result as the attachment's own.
pub fn adopt(addresses: &mut Vec<OwnAddress>, result: &CniResult) {
    for ip in &result.ips {
        let own = OwnAddress { net: ip.address, gateway: ip.gateway };
        // A result without a gateway does not remove a known gateway.
        let known = |have: &OwnAddress| *have == own || own.gateway.is_none() && have.net == own.net;
        if !addresses.iter().any(known) {
            addresses.push(own);
        }
    }
}

/// Returns the address after the network's own address.
pub fn first_address(net: &IpNet) -> Option<IpAddr> {
    match net.network() {
        IpAddr::V4(network) => network.to_bits().checked_add(1).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(network) => network.to_bits().checked_add(1).map(|bits| IpAddr::V6(bits.into())),
    }
}
