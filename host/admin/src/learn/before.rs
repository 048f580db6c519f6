//! Makes the objects of earlier plugins that the `prevResult` of a network names: links of the host, and links of the
//! container with their addresses.

use super::place::NETNS;
use crate::imports::Imports;
use crate::lists::Network;
use anyhow::{Context, Result};
use postern_cni::parse_cidr;
use postern_kernel::{Namespace, Netlink, VethSpec, Worker, random_mac, random_veth_name};
use postern_types::{Capability, Mac};
use serde_json::Value;

/// Makes the links. A plugin that makes links itself gets only the host's links. Returns the network with the
/// container's namespace of this node.
///
/// # Errors
/// The kernel refuses.
pub fn make(network: &Network, imports: &Imports) -> Result<Network> {
    let mut network = network.clone();
    let links = network.links_before();
    let inside: Vec<String> = inside(&network, imports).into_iter().map(str::to_owned).collect();
    if links.is_empty() && inside.is_empty() {
        return Ok(network);
    }
    let (netlink, home) = (Netlink::open()?, Namespace::current()?);
    // If `prevResult` names a bridge and a pair, the bridge is first.
    let has_bridge = links.len() > 1 && !inside.is_empty();
    for (number, (name, mac)) in links.iter().enumerate() {
        if has_bridge && number == 0 {
            netlink.create_bridge(name, None, false).with_context(|| format!("bridge {name} of prevResult"))?;
        } else if inside.is_empty() || number + 1 < links.len() {
            pair(&netlink, name, mac, &format!("learn{number}"), &home)?;
        }
    }
    let container = Namespace::open(NETNS).context(NETNS)?;
    for (number, name) in inside.iter().enumerate() {
        let random = random_veth_name();
        let (end, mac) = match links.last().filter(|_| number == 0) {
            Some((end, mac)) => (end, mac.as_str()),
            None => (&random, ""),
        };
        pair(&netlink, end, mac, name, &container)?;
        if let Some((bridge, _)) = links.first().filter(|_| has_bridge && number == 0) {
            let index = |name: &str| Ok::<_, anyhow::Error>(netlink.link_by_name(name)?.context("no link")?.index);
            netlink.set_master(index(end)?, Some(index(bridge)?))?;
        }
    }
    if !inside.is_empty() {
        give_addresses(&network, &container)?;
        enter(&mut network);
    }
    Ok(network)
}

/// Returns the interface of the attachment, if earlier plugins made it.
pub fn ifname<'n>(network: &'n Network, imports: &Imports) -> Option<&'n str> {
    inside(network, imports).first().copied()
}

/// Returns the container's links that earlier plugins made. A plugin that makes links makes the attachment's own link.
fn inside<'n>(network: &'n Network, imports: &Imports) -> Vec<&'n str> {
    let makes_links = Capability::ALL.iter().any(|capability| capability.makes_links() && imports.has(*capability));
    if makes_links || imports.has(Capability::Loopback) { Vec::new() } else { network.container_links_before() }
}

fn pair(netlink: &Netlink, name: &str, mac: &str, peer_name: &str, peer_ns: &Namespace) -> Result<()> {
    let (mac, peer_mac) = (mac.parse::<Mac>().ok().map(|mac| mac.0), random_mac());
    let spec = VethSpec { name, mtu: None, mac, peer_name, peer_mac, peer_ns: peer_ns.fd() };
    netlink.create_veth(&spec).with_context(|| format!("link {name} of prevResult"))
}

/// Puts the addresses on the links that they point to.
fn give_addresses(network: &Network, container: &Namespace) -> Result<()> {
    let worker = Worker::start(container, || Ok(()))?;
    let netlink = worker.netlink()?;
    let list = |key: &str| network.config.pointer(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let interfaces = list("/prevResult/interfaces");
    for ip in list("/prevResult/ips") {
        let number = ip.get("interface").and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok());
        let name = number.and_then(|number| interfaces.get(number)?.get("name")?.as_str());
        let address = ip.get("address").and_then(Value::as_str).and_then(|text| parse_cidr(text).ok());
        let (Some(name), Some(address)) = (name, address) else { continue };
        if let Some(link) = netlink.link_by_name(name)? {
            netlink.add_address(link.index, address).with_context(|| format!("address {address} of prevResult"))?;
        }
    }
    Ok(())
}

/// Replaces the namespace that the file names by this node's namespace.
fn enter(network: &mut Network) {
    let links = network.config.pointer_mut("/prevResult/interfaces").and_then(Value::as_array_mut);
    for sandbox in links.into_iter().flatten().filter_map(|link| link.get_mut("sandbox")) {
        if sandbox.as_str().is_some_and(|sandbox| !sandbox.is_empty()) {
            *sandbox = Value::from(NETNS);
        }
    }
}
