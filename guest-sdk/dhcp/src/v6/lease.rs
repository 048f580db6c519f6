//! The lease of DHCPv6: address, router, name resolution, times.

use super::packet::Packet;
use super::router::Link;
use super::state::Held;
use crate::config::Options;
use crate::exchange::domain;
use crate::{Lease, LeaseAddress, LeaseDns, LeaseRoute};
use ipnet::{IpNet, Ipv6Net};
use std::net::IpAddr;

/// DHCP numbers of the options that a configuration requests. The client asks for these options by DHCPv6's numbers.
const DNS: u8 = 6;
const DOMAIN: u8 = 15;
const MTU: u8 = 26;
const SEARCH: u8 = 119;

/// The options of DHCPv6 to ask for.
pub fn wanted(options: &Options) -> Vec<u16> {
    let dns = options.requests(DNS).then_some(23);
    let search = (options.requests(DOMAIN) || options.requests(SEARCH)).then_some(24);
    dns.into_iter().chain(search).collect()
}

/// Returns the lease.
pub fn lease(packet: &Packet<'_>, held: &Held, link: &Link, options: &Options) -> Lease {
    let gateway = link.router.map(IpAddr::V6);
    let by_default = gateway.map(|gw| LeaseRoute {
        dst: IpNet::V6(Ipv6Net::default()),
        gw: Some(gw),
        scope: None,
        priority: options.priority,
    });
    let mut dns = LeaseDns::default();
    if options.requests(DNS) {
        let servers = packet
            .name_servers()
            .into_iter()
            .filter(|it| !it.is_unspecified() && !it.is_loopback() && !it.is_multicast());
        dns.nameservers = servers.map(IpAddr::V6).collect();
    }
    let domains: Vec<String> = packet.domains().iter().filter_map(|name| domain(name)).collect();
    if options.requests(DOMAIN) {
        dns.domain = domains.first().cloned();
    }
    if options.requests(SEARCH) {
        dns.search = domains;
    }
    Lease {
        addresses: vec![LeaseAddress { address: IpNet::V6(held.address), gateway }],
        routes: by_default.into_iter().collect(),
        dns,
        mtu: link.mtu.filter(|_| options.requests(MTU)),
        // A DHCPv6 server is known by its identifier, not by an address.
        server: None,
        seconds: held.seconds,
        t1: held.t1,
        t2: held.t2,
    }
}
