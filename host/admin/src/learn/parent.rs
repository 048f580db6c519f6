//! The parent link of a network's links, made for a node without links.

use super::place::NETNS;
use crate::lists::Network;
use anyhow::{Context, Result};
use postern_kernel::{Namespace, Netlink, VethSpec, Worker, random_mac, random_veth_name};
use postern_types::Route;
use serde_json::Value;

/// The parent's name if the network uses the link of the default route.
const UPLINK: &str = "uplink";

/// The largest MTU of a pair. No network asks for a larger MTU.
const MTU: u32 = 65535;

/// Makes the link that the network's `master` names, else a link for the default route. The link is made on the node.
/// With `linkInContainer`, it is made in the container.
///
/// # Errors
/// The kernel refuses.
pub fn make(network: &Network) -> Result<()> {
    let name = network.named("/master");
    let name = name.as_deref();
    if network.config.get("linkInContainer") == Some(&Value::Bool(true)) {
        let container = Namespace::open(NETNS).context(NETNS)?;
        let worker = Worker::start(&container, || Ok(()))?;
        return link(worker.netlink()?, &container, name);
    }
    link(&Netlink::open()?, &Namespace::current()?, name)
}

fn link(netlink: &Netlink, namespace: &Namespace, name: Option<&str>) -> Result<()> {
    let peer_name = random_veth_name();
    let own = name.unwrap_or(UPLINK);
    let spec = VethSpec {
        name: own,
        mtu: Some(MTU),
        mac: None,
        peer_name: &peer_name,
        peer_mac: random_mac(),
        peer_ns: namespace.fd(),
    };
    netlink.create_veth(&spec)?;
    for end in [own, &peer_name] {
        let index = netlink.link_by_name(end)?.with_context(|| format!("{end} is gone"))?.index;
        netlink.set_up(index)?;
        if name.is_none() && end == own {
            netlink.add_route(index, &default_route())?;
        }
    }
    Ok(())
}

fn default_route() -> Route {
    Route {
        dst: ipnet::IpNet::default(),
        gateway: None,
        source: None,
        mtu: None,
        advmss: None,
        priority: None,
        table: None,
        // All addresses are reachable directly: RT_SCOPE_LINK.
        scope: Some(253),
    }
}
