//! The lease that an acknowledgement gives: addresses, routes, name resolution, times.
//!
//! All rules are those of the native client, unless a comment says otherwise.

use super::is_usable;
use super::packet::Packet;
use super::state::Held;
use crate::config::Options;
use crate::exchange::domain;
use crate::timing::{DEFAULT, Times};
use crate::{Lease, LeaseAddress, LeaseDns, LeaseRoute};
use dhcproto::v4::{DhcpOption, OptionCode};
use ipnet::{IpNet, Ipv4Net};
use std::net::{IpAddr, Ipv4Addr};

/// Numbers of the options that a configuration can request.
const DNS: u8 = 6;
const DOMAIN: u8 = 15;
const MTU: u8 = 26;
const SEARCH: u8 = 119;

/// The scope of destinations on the link itself, in rtnetlink's numbers.
const SCOPE_LINK: u8 = 253;

/// The least MTU of IPv4 (RFC 2132, 5.1).
const LEAST_MTU: u16 = 68;

/// Returns the network's prefix length by the subnet mask. `None` if the mask is absent, has gaps, or is 0.0.0.0.
pub fn prefix(packet: &Packet) -> Option<u8> {
    let Some(DhcpOption::SubnetMask(mask)) = packet.option(OptionCode::SubnetMask) else { return None };
    ipnet::ipv4_mask_to_prefix(mask).ok().filter(|prefix| *prefix > 0)
}

/// True if a host can have this address: it is neither the network address nor the broadcast address.
pub fn is_of_a_host(address: Ipv4Net) -> bool {
    address.prefix_len() > 30 || (address.addr() != address.network() && address.addr() != address.broadcast())
}

/// Returns the length of the lease, in seconds.
pub fn seconds(packet: &Packet) -> u32 {
    packet.number(OptionCode::AddressLeaseTime).unwrap_or(DEFAULT)
}

/// Returns the times of the lease.
pub fn times(packet: &Packet) -> Times {
    Times::of(seconds(packet), packet.number(OptionCode::Renewal), packet.number(OptionCode::Rebinding))
}

/// Returns the lease. The lease has name resolution and MTU only if the configuration requests them: the native client
/// gives neither, and existing networks must not change.
pub fn lease(packet: &Packet, held: &Held, options: &Options) -> Lease {
    let gateway = router(packet);
    Lease {
        addresses: vec![LeaseAddress { address: IpNet::V4(held.address), gateway: gateway.map(IpAddr::V4) }],
        routes: routes(packet, gateway, options.priority),
        dns: dns(packet, options),
        mtu: mtu(packet).filter(|_| options.requests(MTU)).map(u32::from),
        server: Some(IpAddr::V4(held.server)),
        seconds: held.seconds,
        t1: held.t1,
        t2: held.t2,
    }
}

/// Returns the first router.
fn router(packet: &Packet) -> Option<Ipv4Addr> {
    let Some(DhcpOption::Router(routers)) = packet.option(OptionCode::Router) else { return None };
    routers.first().copied().filter(|router| !router.is_unspecified())
}

/// Returns the classless routes. Without them, returns the static routes and a default route via the router (RFC 3442).
fn routes(packet: &Packet, gateway: Option<Ipv4Addr>, priority: Option<u32>) -> Vec<LeaseRoute> {
    let classless = classless(packet);
    let pairs = if classless.is_empty() {
        let by_default = gateway.map(|gateway| (Ipv4Net::default(), gateway));
        statics(packet).into_iter().chain(by_default).collect()
    } else {
        classless
    };
    let route = |(dst, gw): (Ipv4Net, Ipv4Addr)| {
        // A router 0.0.0.0 means that the destination is on the link.
        let on_link = gw.is_unspecified();
        LeaseRoute {
            dst: IpNet::V4(dst.trunc()),
            gw: (!on_link).then_some(IpAddr::V4(gw)),
            scope: on_link.then_some(SCOPE_LINK),
            priority,
        }
    };
    pairs.into_iter().map(route).collect()
}

/// Returns the classless routes. An option with an error in it counts as absent: half of the routes may be worse than
/// none.
fn classless(packet: &Packet) -> Vec<(Ipv4Net, Ipv4Addr)> {
    let code = OptionCode::ClasslessStaticRoute;
    let (Some(bytes), Some(DhcpOption::ClasslessStaticRoute(routes))) = (packet.bytes(code), packet.option(code))
    else {
        return Vec::new();
    };
    // dhcproto stops at an invalid prefix length and returns the routes before it. So the routes must cover all bytes.
    let read: usize = routes.iter().map(|(dst, _)| 1 + usize::from(dst.prefix_len()).div_ceil(8) + 4).sum();
    if read == bytes.len() { routes } else { Vec::new() }
}

/// Returns the routes of option 33, whose destinations have the prefix length of their class. A default route is not
/// allowed in this option (RFC 2132, 5.8).
fn statics(packet: &Packet) -> Vec<(Ipv4Net, Ipv4Addr)> {
    let Some(DhcpOption::StaticRoutingTable(pairs)) = packet.option(OptionCode::StaticRoutingTable) else {
        return Vec::new();
    };
    let route = |(destination, router): (Ipv4Addr, Ipv4Addr)| {
        let prefix = match destination.octets() {
            [0..=127, ..] => 8,
            [128..=191, ..] => 16,
            _ => 24,
        };
        let net = Ipv4Net::new(destination, prefix).ok()?;
        (!destination.is_unspecified() && !router.is_unspecified()).then_some((net, router))
    };
    pairs.into_iter().filter_map(route).collect()
}

fn mtu(packet: &Packet) -> Option<u16> {
    let bytes = packet.bytes(OptionCode::InterfaceMtu)?.try_into().ok()?;
    Some(u16::from_be_bytes(bytes)).filter(|mtu| *mtu >= LEAST_MTU)
}

fn dns(packet: &Packet, options: &Options) -> LeaseDns {
    let mut dns = LeaseDns::default();
    if options.requests(DNS)
        && let Some(DhcpOption::DomainNameServer(servers)) = packet.option(OptionCode::DomainNameServer)
    {
        dns.nameservers = servers.into_iter().filter(|server| is_usable(*server)).map(IpAddr::V4).collect();
    }
    if options.requests(DOMAIN)
        && let Some(DhcpOption::DomainName(name)) = packet.option(OptionCode::DomainName)
    {
        // Some servers end the text with a zero byte.
        dns.domain = domain(name.trim_end_matches('\0'));
    }
    if options.requests(SEARCH)
        && let Some(DhcpOption::DomainSearch(names)) = packet.option(OptionCode::DomainSearch)
    {
        dns.search = names.iter().filter_map(|name| domain(&name.to_ascii())).collect();
    }
    dns
}
