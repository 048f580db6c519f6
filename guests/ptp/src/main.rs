//! ptp: connects the container with the host by a pair. The host routes every address; there is no bridge.
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `ipam` | – | required: every address must come with a gateway |
//! | `ipMasq` | false | traffic to other networks leaves with the node's address |
//! | `ipMasqBackend` | the node's default | `nftables` or `iptables` |
//! | `mtu` | kernel's | of both ends, in bytes |
//! | `dns` | IPAM's | a `dns` with any key replaces IPAM's `dns` |
//!
//! `CNI_ARGS` isn't read here; IPAM gets it unchanged.
//!
//! * ADD: takes addresses from IPAM and makes the pair. In the container the gateway is reachable through the link. All
//!   other traffic goes through the gateway, even to the address's own network. The host end gets the gateway's
//!   address, and the host routes the container's addresses to the host end. Masquerading comes last.
//! * DEL: releases the addresses, and removes the other objects. All removals are tried, and the first failure is
//!   returned.
//! * CHECK: calls IPAM's CHECK. The pair must be up, and have the addresses and routes of `prevResult`. Compares
//!   masquerading. The host checks the host end's gateway address and the route to the container.
//! * STATUS: calls IPAM's STATUS. GC: removes this plugin's garbage, and calls IPAM's GC.
//!
//! Differences from the native plugin: this plugin does not wait for duplicate address detection. Addresses with the
//! full prefix length (/32, /128) and addresses that share a gateway work. Masquerading is removed even if the
//! container is gone.

mod config;

use config::Config;
use ipnet::IpNet;
use postern_guest::cni::{CniResult, IpConfig};
use postern_guest::types::Route;
use postern_guest::{
    Error, Plugin, Request, all, attachments, check, configure, forwarding, has_mac, interface, ipam, link,
    link_sysctl, mac, masquerade, point_to_point, routes, veth,
};
use std::net::IpAddr;
use std::process::ExitCode;

struct PointToPoint;

impl Plugin for PointToPoint {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let config = Config::read(request)?;
        let mut result = ipam::add()?;
        let gateways = gateways(&result.ips)?;
        let kernel_routes = configure::kernel_routes(&result)?;

        let pair = veth::create(&veth::Options::default().mtu(config.mtu))?;
        if configure::has_ipv6(&result.ips) {
            // Duplicate address detection is switched off: no other node is on this link.
            configure::best_effort(link_sysctl::set_accept_dad(&pair.container, false))?;
        }
        let (whole, networks): (Vec<_>, Vec<_>) = gateways.iter().partition(|(net, _)| is_whole(net));
        // No network contains the gateway of an address with the full prefix length. So the gateway must be reachable
        // before other routes can use it.
        let mut first = Vec::new();
        whole.into_iter().for_each(|pair| configure::push_new(&mut first, to_gateway(pair)));
        kernel_routes.into_iter().for_each(|route| configure::push_new(&mut first, route));
        configure::configure(&pair.container, &result.ips, &first)?;
        through_gateways(&pair.container, &networks, &first)?;

        forwarding::enable()?;
        point_to_point::ensure(&pair.host)?;
        config.masquerade.ensure()?;

        result.ips.iter_mut().for_each(|ip| ip.interface = Some(1));
        result.interfaces =
            vec![interface(&pair.host_attributes, ""), interface(&pair.container_attributes, &request.env.netns)];
        result.dns = config.dns.unwrap_or(result.dns);
        Ok(result)
    }

    fn del(&self, request: &Request) -> Result<(), Error> {
        // A configuration that ADD would refuse must not stop DEL.
        let conf = request.conf().map_err(config::load_error)?;
        let masquerading = matches!(conf.fields().bool("ipMasq"), Ok(Some(true)));
        all([
            // Rules are removed first. So the kernel's wait for readers of the old rules overlaps with the wait at the
            // link's removal.
            if masquerading { masquerade::remove() } else { Ok(()) },
            link::delete_own(),
            if conf.ipam_type.is_empty() { Ok(()) } else { ipam::del() },
        ])
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        let config = Config::read(request)?;
        ipam::check()?;
        let result = check::previous_result(&request.conf()?, "ptp: Required prevResult missing")?;
        let expected = request.own_interface(&result)?;
        let name = &expected.name;
        let Some(pair) = veth::find()? else {
            return Err(match link::own()? {
                None => Error::new(format!("ptp: Container Interface name in prevResult: {name} not found")),
                Some(_) => Error::new(format!("Error: Container interface {name} not of type veth/p2p")),
            });
        };
        let found = mac(&pair.container_attributes);
        if !has_mac(&expected.mac, &pair.container_attributes) {
            let mac = &expected.mac;
            return Err(Error::new(format!("ptp: Interface {name} Mac {mac} doesn't match container Mac: {found}")));
        }
        for end in [&pair.container_attributes, &pair.host_attributes] {
            if !end.up {
                return Err(Error::new(format!("ptp: Interface {} is down", end.name)));
            }
        }
        check::configuration(&pair.container, name, &result)?;
        config.masquerade.check()
    }

    fn status(&self, _request: &Request) -> Result<(), Error> {
        ipam::status()
    }

    fn gc(&self, request: &Request) -> Result<(), Error> {
        let layer3 = !request.ipam_type().map_err(config::load_error)?.is_empty();
        all([attachments::collect().map(drop), if layer3 { ipam::gc() } else { Ok(()) }])
    }
}

/// Returns every address with its gateway. An address without a gateway is an error.
fn gateways(ips: &[IpConfig]) -> Result<Vec<(IpNet, IpAddr)>, Error> {
    if ips.is_empty() {
        return Err(Error::new("IPAM plugin returned missing IP config"));
    }
    let pair = |ip: &IpConfig| {
        let missing = || Error::new(format!("IPAM plugin returned no gateway for {}", ip.address));
        Ok((ip.address, ip.gateway.ok_or_else(missing)?))
    };
    ips.iter().map(pair).collect()
}

fn is_whole(net: &IpNet) -> bool {
    net.prefix_len() == net.max_prefix_len()
}

/// Returns the route to a gateway, which is on the link.
fn to_gateway((net, gateway): &(IpNet, IpAddr)) -> Route {
    Route { source: Some(net.addr()), scope: Some(253), ..routes::to(IpNet::from(*gateway)) }
}

/// Returns the route to a network, which is behind the gateway.
fn to_network((net, gateway): &(IpNet, IpAddr)) -> Route {
    Route { source: Some(net.addr()), gateway: Some(*gateway), ..routes::to(net.trunc()) }
}

/// Replaces the kernel's own route to each network by a route through the gateway. Addresses may share network or
/// gateway.
fn through_gateways(link: &link::Link, pairs: &[&(IpNet, IpAddr)], present: &[Route]) -> Result<(), Error> {
    let mut connected: Vec<IpNet> = Vec::new();
    let mut wanted = Vec::new();
    for pair in pairs {
        let network = pair.0.trunc();
        if !connected.contains(&network) {
            connected.push(network);
        }
        for route in [to_gateway(pair), to_network(pair)] {
            configure::push_new(&mut wanted, route);
        }
    }
    // IPAM may have returned the same route.
    wanted.retain(|route| !present.iter().any(|known| (known.dst, known.gateway) == (route.dst, route.gateway)));
    if connected.is_empty() {
        return Ok(());
    }
    routes::remove_connected(link, &connected)?;
    routes::add(link, &wanted)
}

fn main() -> ExitCode {
    postern_guest::run(&PointToPoint)
}

#[cfg(test)]
mod tests;
