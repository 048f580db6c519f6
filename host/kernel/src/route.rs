//! Routes (`rtnetlink(7)`, `RTM_*ROUTE`; attributes of `linux/rtnetlink.h`).

use crate::error::{Result, Subject, unless};
use crate::netlink::Netlink;
use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteNextHopFlags, RouteProtocol, RouteScope, RouteType,
};
use nix::errno::Errno;
use nix::libc::{
    self, RTA_DST, RTA_GATEWAY, RTA_METRICS, RTA_MULTIPATH, RTA_OIF, RTA_PREFSRC, RTA_PRIORITY, RTA_TABLE,
};
use postern_netlink::NetlinkRequest;
use postern_netlink::{Attribute, Attributes, ip, u8_at, u16_at, u32_at};
use postern_types::{KeptRoute, NextHop, Route, WholeRoute};
use rtnetlink::RouteMessageBuilder;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of `struct rtmsg`.
const HEADER: usize = 12;
/// Length of `struct rtnexthop`.
const NEXT_HOP: usize = 8;

const RTA_VIA: u16 = 18;
const RTAX_MTU: u16 = 2;
const RTAX_ADVMSS: u16 = 8;

/// The main table, `RT_TABLE_MAIN`.
pub const MAIN_TABLE: u32 = 254;
/// The multicast group of all hosts (RFC 1112).
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);

impl Netlink {
    /// Adds a route through link `oif`. As in the native plugins, the request has the flag "create", without
    /// "exclusive" and "replace". So the kernel adds a route that differs only in gateway or preferred source. An IPv4
    /// route comes before the old route; an IPv6 route becomes one more next hop. Only an exact duplicate is refused.
    ///
    /// # Errors
    /// `EEXIST` for a duplicate. `ENETUNREACH` if the gateway is not reachable through the link, or if the scope
    /// forbids a gateway. `EINVAL` for addresses of different families, and for a source that no link has. `ENETDOWN`
    /// if the link is down, `ENODEV` if the link is missing.
    pub fn add_route(&self, oif: u32, route: &Route) -> Result<()> {
        self.new_route(oif, route, RouteProtocol::Boot, NLM_F_CREATE)
    }

    /// Adds a route, unless another route to the same destination exists through any link.
    ///
    /// # Errors
    /// The errors of [`Netlink::add_route`]; `EEXIST` for any route to this destination with the same metric.
    pub fn add_first_route(&self, oif: u32, route: &Route) -> Result<()> {
        self.new_route(oif, route, RouteProtocol::Boot, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Puts a route through link `oif` into its table. With `replace`, the new route replaces a route to the same
    /// destination with the same metric. Without `replace`, the new route is added beside existing routes.
    ///
    /// # Errors
    /// The errors of [`Netlink::add_route`]; `EEXIST` only without `replace`.
    pub fn put_route(&self, oif: u32, kept: &KeptRoute, replace: bool) -> Result<()> {
        let flags = if replace { NLM_F_CREATE | NLM_F_REPLACE } else { NLM_F_CREATE };
        self.new_route(oif, &kept.route, RouteProtocol::from(kept.protocol), flags)
    }

    fn new_route(&self, oif: u32, route: &Route, protocol: RouteProtocol, flags: u16) -> Result<()> {
        let object = Described { route, oif };
        let subject = Subject { operation: "add route", object: &object };
        let mut message = add_message(oif, route).map_err(|why| subject.invalid(&why))?;
        message.header.protocol = protocol;
        self.acknowledged(subject, &RouteNetlinkMessage::NewRoute(message), flags)
    }

    /// Deletes the route through link `oif` with this table, destination, gateway and metric. False if the route is
    /// missing.
    pub fn delete_route(&self, oif: u32, route: &Route) -> Result<bool> {
        let object = Described { route, oif };
        let subject = Subject { operation: "delete route", object: &object };
        let route = Route { source: None, mtu: None, advmss: None, ..route.clone() };
        let mut message = add_message(oif, &route).map_err(|why| subject.invalid(&why))?;
        message.header.protocol = RouteProtocol::Unspec;
        message.header.kind = RouteType::Unspec;
        message.header.scope = RouteScope::NoWhere;
        self.delete(subject, message)
    }

    /// Deletes exactly this route through link `oif`: source, scope and origin must be equal too. False if the route is
    /// missing.
    pub fn delete_kept_route(&self, oif: u32, kept: &KeptRoute) -> Result<bool> {
        let object = Described { route: &kept.route, oif };
        let subject = Subject { operation: "delete route", object: &object };
        let mut message = add_message(oif, &kept.route).map_err(|why| subject.invalid(&why))?;
        message.header.protocol = RouteProtocol::from(kept.protocol);
        self.delete(subject, message)
    }

    fn delete(&self, subject: Subject<'_>, message: RouteMessage) -> Result<bool> {
        // The route, the table or the link is missing.
        let none = [Errno::ESRCH, Errno::ENOENT, Errno::ENODEV];
        Ok(unless(&none, self.acknowledged(subject, &RouteNetlinkMessage::DelRoute(message), 0))?.is_some())
    }

    /// Returns the unicast routes of all tables with their origin, each with its outgoing link.
    pub fn kept_routes(&self) -> Result<Vec<(u32, KeptRoute)>> {
        let subject = Subject { operation: "list", object: &"routes" };
        let request = NetlinkRequest::new(&RouteNetlinkMessage::GetRoute(RouteMessage::default()), 0);
        self.dump(subject, request, |payload| {
            Some(read(payload)?.iter().flat_map(WholeRoute::each).collect::<Vec<_>>())
        })
    }

    /// Deletes the kernel's own route to `net`'s network through link `oif`, in the main table. The route may have any
    /// scope, type and source. The kernel made this route when the link got its address. A route of another origin
    /// stays.
    ///
    /// # Errors
    /// `ESRCH` if the route is missing.
    pub fn delete_connected(&self, oif: u32, net: IpNet) -> Result<()> {
        let subject =
            Subject { operation: "delete route", object: &format_args!("{} through link {oif}", net.trunc()) };
        let message = destination(net)
            .map_err(|why| subject.invalid(&why))?
            .output_interface(oif)
            .protocol(RouteProtocol::Kernel)
            .kind(RouteType::Unspec)
            .scope(RouteScope::NoWhere)
            .build();
        self.acknowledged(subject, &RouteNetlinkMessage::DelRoute(message), 0)
    }

    /// True if the address is this host's own. The kernel delivers packets for the address locally.
    pub fn is_local(&self, address: IpAddr) -> Result<bool> {
        Ok(self.way(address)?.is_some_and(|(kind, _)| kind == libc::RTN_LOCAL))
    }

    /// Returns the link through which this host sends packets to the address. `None` if there is no route, or if the
    /// address is this host's own.
    pub fn link_towards(&self, address: IpAddr) -> Result<Option<u32>> {
        Ok(self.way(address)?.filter(|(kind, _)| *kind == libc::RTN_UNICAST).and_then(|(_, link)| link))
    }

    /// True if a link has the address, so that packets of this host can have this source. `None` if the kernel doesn't
    /// tell. The request has a multicast group as its destination. Then the kernel first looks for the link with the
    /// source address, and needs no route (`ip_route_output_key_hash_rcu` in the kernel's `net/ipv4/route.c`).
    pub(crate) fn is_source(&self, address: Ipv4Addr) -> Result<Option<bool>> {
        let subject = Subject { operation: "look for", object: &address };
        let mut message = question(subject, ALL_HOSTS.into())?;
        message.header.source_prefix_length = 32;
        message.attributes.push(RouteAttribute::Source(RouteAddress::Inet(address)));
        match self.get(subject, &RouteNetlinkMessage::GetRoute(message), |payload| u8_at(payload, 7)) {
            Ok(kind) => Ok((kind == libc::RTN_MULTICAST).then_some(true)),
            Err(error) if error.is(Errno::ENETUNREACH) => Ok(Some(false)),
            Err(error) if error.errno.is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the type of the route to this address, and its outgoing link.
    fn way(&self, address: IpAddr) -> Result<Option<(u8, Option<u32>)>> {
        let subject = Subject { operation: "look up route to", object: &address };
        let message = question(subject, address)?;
        let read = |payload: &[u8]| {
            let link = Attributes(payload.get(HEADER..)?).first(RTA_OIF);
            Some((u8_at(payload, 7)?, link.and_then(|link| link.u32())))
        };
        match self.get(subject, &RouteNetlinkMessage::GetRoute(message), read) {
            Ok(way) => Ok(Some(way)),
            Err(error) if error.is_passing() => Err(error),
            // There is no route, or the route is unreachable or prohibited.
            Err(error) if error.errno.is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the unicast routes of all tables, each with its outgoing link.
    pub fn all_routes(&self) -> Result<Vec<(u32, Route)>> {
        Ok(self.kept_routes()?.into_iter().map(|(link, kept)| (link, kept.route)).collect())
    }

    /// Returns the unicast routes of the main table through link `oif`, IPv4 first. A route with several next hops
    /// gives one entry for each next hop on the link. The kernel filters by table and link.
    pub fn routes(&self, oif: u32) -> Result<Vec<Route>> {
        let subject = Subject { operation: "list routes of", object: &format_args!("link {oif}") };
        // One dump for both families also works if a family has no main table yet.
        let mut message = RouteMessage::default();
        message.attributes = vec![RouteAttribute::Oif(oif), RouteAttribute::Table(MAIN_TABLE)];
        self.dump(subject, NetlinkRequest::new(&RouteNetlinkMessage::GetRoute(message), 0), |payload| {
            let whole = read(payload)?.filter(|whole| whole.kept.route.table == Some(MAIN_TABLE));
            let hops = whole.iter().flat_map(WholeRoute::each).filter(|(link, _)| *link == oif);
            Some(hops.map(|(_, kept)| kept.route).collect::<Vec<_>>())
        })
    }
}

/// A route in an error message, as `ip route` writes it.
pub(crate) struct Described<'a> {
    pub route: &'a Route,
    pub oif: u32,
}

impl std::fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.route.dst.trunc())?;
        if let Some(gateway) = self.route.gateway {
            write!(f, " via {gateway}")?;
        }
        write!(f, " through link {}", self.oif)?;
        for (name, value) in
            [("metric", self.route.priority), ("scope", self.route.scope.map(u32::from)), ("table", self.route.table)]
        {
            if let Some(value) = value {
                write!(f, " {name} {value}")?;
            }
        }
        Ok(())
    }
}

/// Makes a message about the routes to `net`'s network; an `Err` says what is wrong with `net`.
fn destination(net: IpNet) -> std::result::Result<RouteMessageBuilder<IpAddr>, String> {
    let net = net.trunc();
    RouteMessageBuilder::<IpAddr>::new().destination_prefix(net.addr(), net.prefix_len()).map_err(|e| e.to_string())
}

/// Makes the request for the route to an address. Only the destination is set: the kernel would read the other parts of
/// a new route as conditions.
fn question(subject: Subject<'_>, address: IpAddr) -> Result<RouteMessage> {
    let mut message = destination(address.into()).map_err(|why| subject.invalid(&why))?.build();
    message.header.table = 0;
    message.header.protocol = RouteProtocol::Unspec;
    message.header.kind = RouteType::Unspec;
    Ok(message)
}

pub(crate) fn add_message(oif: u32, route: &Route) -> std::result::Result<RouteMessage, String> {
    let mut builder = destination(route.dst)?
        .output_interface(oif)
        // For the kernel, "boot" means "set by hand". The native plugins use this value too.
        .protocol(RouteProtocol::Boot)
        .scope(RouteScope::from(route.scope.unwrap_or(0)))
        .table_id(route.table.unwrap_or(MAIN_TABLE));
    if let Some(gateway) = route.gateway {
        builder = builder.gateway(gateway).map_err(|_| "the gateway is of another address family".to_owned())?;
    }
    if let Some(source) = route.source {
        builder = builder.pref_source(source).map_err(|_| "the source is of another address family".to_owned())?;
    }
    if let Some(priority) = route.priority {
        builder = builder.priority(priority);
    }
    let mut message = builder.build();
    let metrics: Vec<_> =
        [route.mtu.map(RouteMetric::Mtu), route.advmss.map(RouteMetric::Advmss)].into_iter().flatten().collect();
    if !metrics.is_empty() {
        message.attributes.push(RouteAttribute::Metrics(metrics));
    }
    Ok(message)
}

/// Reads an `RTM_NEWROUTE`: a unicast route, with its next hops. `Some(None)` for a route of another type, and for a
/// route without a link.
pub(crate) fn read(payload: &[u8]) -> Option<Option<WholeRoute>> {
    let unspecified: IpAddr = match libc::c_int::from(u8_at(payload, 0)?) {
        libc::AF_INET => Ipv4Addr::UNSPECIFIED.into(),
        libc::AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return Some(None),
    };
    let protocol = u8_at(payload, 5)?;
    let [flags, ..] = u32_at(payload, 8)?.to_le_bytes();
    let cloned = u32_at(payload, 8)? & libc::RTM_F_CLONED != 0;
    if cloned || u8_at(payload, 7)? != libc::RTN_UNICAST {
        return Some(None);
    }
    let mut route = Route {
        dst: IpNet::new(unspecified, u8_at(payload, 1)?).ok()?,
        table: Some(u32::from(u8_at(payload, 4)?)),
        scope: Some(u8_at(payload, 6)?),
        ..Route::default()
    };
    let (mut link, mut way) = (None, None);
    let mut next_hops: &[u8] = &[];
    for attribute in Attributes(payload.get(HEADER..)?).iter() {
        match attribute.kind {
            RTA_DST => route.dst = IpNet::new(ip(attribute.value)?, route.dst.prefix_len()).ok()?,
            RTA_OIF => link = attribute.u32(),
            RTA_GATEWAY | RTA_VIA => way = Some(gateway(&attribute)?),
            RTA_PRIORITY => route.priority = attribute.u32(),
            RTA_PREFSRC => route.source = ip(attribute.value),
            RTA_TABLE => route.table = attribute.u32(),
            RTA_METRICS => {
                for metric in attribute.nested().iter() {
                    match metric.kind {
                        RTAX_MTU => route.mtu = metric.u32(),
                        RTAX_ADVMSS => route.advmss = metric.u32(),
                        _ => {}
                    }
                }
            }
            RTA_MULTIPATH => next_hops = attribute.value,
            _ => {}
        }
    }
    let on_link = |flags| RouteNextHopFlags::from_bits_retain(flags).contains(RouteNextHopFlags::Onlink);
    let first = |link| NextHop { link, gateway: way, weight: 0, on_link: on_link(flags) };
    let mut hops: Vec<NextHop> = link.map(first).into_iter().collect();
    // struct rtnexthop: length, flags, weight, link; then its own attributes.
    while !next_hops.is_empty() {
        let length = usize::from(u16_at(next_hops, 0)?);
        let hop = next_hops.get(..length)?;
        next_hops = next_hops.get(length.next_multiple_of(4)..).unwrap_or_default();
        let mut next =
            NextHop { link: u32_at(hop, 4)?, gateway: way, weight: u8_at(hop, 3)?, on_link: on_link(u8_at(hop, 2)?) };
        let attributes = Attributes(hop.get(NEXT_HOP..)?);
        for attribute in attributes.iter().filter(|attribute| matches!(attribute.kind, RTA_GATEWAY | RTA_VIA)) {
            next.gateway = Some(gateway(&attribute)?);
        }
        hops.push(next);
    }
    Some((!hops.is_empty()).then_some(WholeRoute { kept: KeptRoute { route, protocol }, hops }))
}

/// Returns the next hop. `RTA_VIA` has a next hop of another family, and begins with two bytes of family.
fn gateway(attribute: &Attribute<'_>) -> Option<IpAddr> {
    match attribute.kind {
        RTA_VIA => ip(attribute.value.get(2..)?),
        _ => ip(attribute.value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_netlink::attribute;

    fn header(family: u8, prefix: u8) -> Vec<u8> {
        vec![family, prefix, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0]
    }

    #[test]
    fn each_next_hop_has_its_link() {
        let hop = |link: u32, address: [u8; 4]| {
            let gateway = attribute(RTA_GATEWAY, &address);
            let length = u16::try_from(NEXT_HOP + gateway.len()).unwrap();
            [length.to_ne_bytes().to_vec(), vec![0, 0], link.to_ne_bytes().to_vec(), gateway].concat()
        };
        let hops = [hop(3, [192, 0, 2, 1]), hop(4, [192, 0, 2, 2]), hop(3, [192, 0, 2, 3])].concat();
        let message = [header(2, 0), attribute(RTA_MULTIPATH, &hops)].concat();
        let whole = read(&message).unwrap().unwrap();
        let gateways: Vec<_> = whole.hops.iter().map(|hop| (hop.link, hop.gateway.unwrap().to_string())).collect();
        assert_eq!(gateways, [(3, "192.0.2.1".to_owned()), (4, "192.0.2.2".to_owned()), (3, "192.0.2.3".to_owned())]);
        assert_eq!(whole.kept.route.dst.to_string(), "0.0.0.0/0");
    }

    #[test]
    fn malformed_messages_are_refused() {
        let via = [10u16.to_ne_bytes().as_slice(), &[0x20; 16]].concat();
        let message = [
            header(2, 24),
            attribute(RTA_DST, &[198, 51, 100, 0]),
            attribute(RTA_OIF, &3u32.to_ne_bytes()),
            attribute(RTA_VIA, &via),
        ]
        .concat();
        assert!(read(&message).unwrap().unwrap().hops[0].gateway.unwrap().is_ipv6());
        for end in 0..message.len() {
            let _ = read(&message[..end]);
        }
        for bad in [
            [header(2, 33), vec![]].concat(),
            [header(2, 24), attribute(RTA_DST, &[1, 2, 3])].concat(),
            [header(2, 24), attribute(RTA_GATEWAY, &[])].concat(),
            [header(2, 0), attribute(RTA_MULTIPATH, &[0, 0, 0, 0])].concat(),
            [header(2, 0), attribute(RTA_MULTIPATH, &[8, 0, 0])].concat(),
        ] {
            assert_eq!(read(&bad), None, "{bad:?}");
        }
    }

    #[test]
    fn families_must_agree() {
        let mut route = Route {
            dst: "2001:db8::/64".parse().unwrap(),
            gateway: Some("192.0.2.1".parse().unwrap()),
            source: None,
            mtu: None,
            advmss: None,
            priority: None,
            table: None,
            scope: None,
        };
        assert!(add_message(1, &route).unwrap_err().contains("gateway"));
        route.gateway = None;
        route.source = Some("192.0.2.1".parse().unwrap());
        assert!(add_message(1, &route).unwrap_err().contains("source"));
    }
}
