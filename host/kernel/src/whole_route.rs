//! Routes with all their next hops (`RTA_MULTIPATH`).

use crate::error::{Result, Subject};
use crate::netlink::Netlink;
use crate::route::{Described, add_message, read};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHop, RouteNextHopFlags, RouteProtocol, RouteVia,
};
use postern_netlink::NetlinkRequest;
use postern_types::{NextHop, Route, WholeRoute};
use std::net::IpAddr;

impl Netlink {
    /// Returns the unicast routes of all tables. An IPv6 route with several next hops is also one route.
    pub fn whole_routes(&self) -> Result<Vec<WholeRoute>> {
        self.list_whole(RouteMessage::default())
    }

    /// Returns the unicast routes of one table, in the kernel's order. The kernel filters by table.
    pub fn whole_routes_in(&self, table: u32) -> Result<Vec<WholeRoute>> {
        let mut message = RouteMessage::default();
        message.attributes = vec![RouteAttribute::Table(table)];
        self.list_whole(message)
    }

    fn list_whole(&self, filter: RouteMessage) -> Result<Vec<WholeRoute>> {
        let subject = Subject { operation: "list", object: &"routes" };
        self.dump(subject, NetlinkRequest::new(&RouteNetlinkMessage::GetRoute(filter), 0), read)
    }

    /// Puts a route into its table. With `replace` the new route replaces the first route to the same destination with
    /// the same metric. Without `replace`, the new route is added beside the existing route.
    ///
    /// # Errors
    /// The errors of [`Netlink::add_route`]; `EEXIST` only without `replace`.
    pub fn put_whole_route(&self, whole: &WholeRoute, replace: bool) -> Result<()> {
        let link = whole.hops.first().map_or(0, |hop| hop.link);
        let object = Described { route: &whole.kept.route, oif: link };
        let subject = Subject { operation: "add route", object: &object };
        let message = message(whole).map_err(|why| subject.invalid(&why))?;
        let flags = if replace { NLM_F_CREATE | NLM_F_REPLACE } else { NLM_F_CREATE };
        self.acknowledged(subject, &RouteNetlinkMessage::NewRoute(message), flags)
    }
}

fn message(whole: &WholeRoute) -> std::result::Result<RouteMessage, String> {
    let mut message = match &whole.hops[..] {
        [] => return Err("it has no next hop".to_owned()),
        [only] => {
            let mut message = add_message(only.link, &Route { gateway: only.gateway, ..whole.kept.route.clone() })?;
            if only.on_link {
                message.header.flags |= RouteFlags::Onlink;
            }
            message
        }
        several => {
            let mut message = add_message(0, &whole.kept.route)?;
            message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::Oif(_)));
            let to = whole.kept.route.dst.addr();
            let hops = several.iter().map(|hop| next_hop(hop, to)).collect();
            message.attributes.push(RouteAttribute::MultiPath(hops));
            message
        }
    };
    message.header.protocol = RouteProtocol::from(whole.kept.protocol);
    Ok(message)
}

fn next_hop(hop: &NextHop, destination: IpAddr) -> RouteNextHop {
    let mut next = RouteNextHop::default();
    next.interface_index = hop.link;
    next.hops = hop.weight;
    if hop.on_link {
        next.flags |= RouteNextHopFlags::Onlink;
    }
    next.attributes.extend(hop.gateway.map(|gateway| match gateway {
        IpAddr::V4(gateway) => RouteAttribute::Gateway(RouteAddress::Inet(gateway)),
        IpAddr::V6(gateway) if destination.is_ipv4() => RouteAttribute::Via(RouteVia::Inet6(gateway)),
        IpAddr::V6(gateway) => RouteAttribute::Gateway(RouteAddress::Inet6(gateway)),
    }));
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::Emitable;
    use postern_types::KeptRoute;

    /// A route that the kernel showed can be written again unchanged.
    #[test]
    fn a_route_is_read_as_it_was_written() {
        let hop = |link, gateway: &str, weight, on_link| NextHop {
            link,
            gateway: Some(gateway.parse().unwrap()),
            weight,
            on_link,
        };
        let route = Route {
            dst: "0.0.0.0/0".parse().unwrap(),
            gateway: None,
            source: Some("192.0.2.9".parse().unwrap()),
            mtu: Some(1400),
            advmss: None,
            priority: Some(7),
            table: Some(254),
            scope: Some(0),
        };
        let first = hop(3, "192.0.2.1", 0, false);
        for hops in [vec![first.clone()], vec![hop(3, "192.0.2.1", 0, true)], vec![first, hop(4, "fe80::1", 9, true)]] {
            let whole = WholeRoute { kept: KeptRoute { route: route.clone(), protocol: 3 }, hops };
            let message = message(&whole).unwrap();
            let mut payload = vec![0; message.buffer_len()];
            message.emit(&mut payload);
            assert_eq!(read(&payload).unwrap(), Some(whole.clone()));
            let own = whole.with(|hop| hop.link == 3).unwrap();
            assert_eq!(own.hops.len(), 1);
            assert_eq!(whole.with(|hop| hop.link == 5), None);
            assert!(own.is_of(&whole.kept) && whole.each().all(|(_, kept)| own.is_of(&kept)));
        }
    }
}
