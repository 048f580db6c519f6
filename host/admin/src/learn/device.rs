//! The link that a network moves into its container, made for a node without links.

use crate::lists::Network;
use anyhow::Result;
use postern_kernel::{Namespace, Netlink, VethSpec, random_mac, random_veth_name};
use postern_types::Mac;

/// Makes the link that the network names by `device` or `hwaddr`. A device below `/sys` can't be made.
///
/// # Errors
/// The kernel refuses.
pub fn make(network: &Network) -> Result<()> {
    let mac = network.named("/hwaddr").and_then(|text| text.parse::<Mac>().ok());
    let name = match (network.named("/device"), mac) {
        (Some(name), _) => name,
        (None, Some(_)) => random_veth_name(),
        (None, None) => return Ok(()),
    };
    let here = Namespace::current()?;
    let spec = VethSpec {
        name: &name,
        mtu: None,
        mac: mac.map(|mac| mac.0),
        peer_name: &random_veth_name(),
        peer_mac: random_mac(),
        peer_ns: here.fd(),
    };
    Ok(Netlink::open()?.create_veth(&spec)?)
}
