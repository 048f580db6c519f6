//! `routes`: the routes through the attachment's own link.

use crate::capability::addresses::{is_askable, is_listable, not_own};
pub(crate) use crate::capability::facts::WITH_ADDRESSES as FACTS;
use crate::capability::shared::link_state;
use crate::capability::source_routes::effect as source_routes;
use crate::effect::LinkState;
use crate::errors::{kernel_error, native_error};
use crate::gate::Gate;
use crate::{cause, in_container};
use ipnet::IpNet;
use postern_kernel::MAIN_TABLE;
use postern_types::{Handle, KeptRoute, OpError, Route, host};
use std::collections::HashMap;

/// The origins of a route: the kernel or a program. `rtm_protocol` of linux/rtnetlink.h.
const BY_KERNEL: u8 = 2;
const BY_PROGRAM: u8 = 3;

impl host::Routes for Gate<'_> {
    fn add(&mut self, handle: Handle, routes: &[Route]) -> Result<(), OpError> {
        let (index, name) = self.guest.own(handle)?;
        self.common.add_routes(&name, routes.len())?;
        for source in routes.iter().filter_map(|route| route.source) {
            if !self.run.own.addresses.iter().any(|own| own.net.addr() == source) {
                return Err(not_own(&source.to_string()));
            }
        }
        if link_state::of_another(self.run, index)?.is_some() {
            let netlink = self.run.system.container_netlink()?;
            let there = in_container::routes_of(netlink, index).map_err(kernel_error)?;
            let new = routes.iter().filter(|route| !there.iter().any(|have| is_same(&have.route, route)));
            let routes: Vec<KeptRoute> =
                new.map(|route| KeptRoute { route: route.clone(), protocol: BY_PROGRAM }).collect();
            if !routes.is_empty() {
                self.run.journal.intend(self.run.view(), LinkState { index, routes, ..LinkState::default() })?;
            }
        }
        let container = self.run.system.container_netlink()?;
        for route in routes {
            self.run.fixed.deadline.in_time()?;
            container.add_route(index, route).map_err(|error| {
                let via = route.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
                let metric = route.priority.map(|metric| format!(" metric {metric}")).unwrap_or_default();
                let table = route.table.map(|table| format!(" table {table}")).unwrap_or_default();
                let scope = route.scope.map(|scope| format!(" scope {scope}")).unwrap_or_default();
                let words = format!("{}{via} dev {name}{metric}{table}{scope}", route.dst);
                let error = native_error(error, &words, format_args!("failed to add route '{words}'"));
                cause::of_ip(error, route.dst.addr(), &name, None)
            })?;
        }
        Ok(())
    }

    fn remove_connected(&mut self, handle: Handle, networks: &[IpNet]) -> Result<(), OpError> {
        let (index, name) = self.guest.own(handle)?;
        if link_state::of_another(self.run, index)?.is_some() {
            let netlink = self.run.system.container_netlink()?;
            let is_meant = |kept: &KeptRoute| {
                let route = &kept.route;
                kept.protocol == BY_KERNEL
                    && route.table == Some(MAIN_TABLE)
                    && networks.iter().any(|network| network.trunc() == route.dst)
            };
            let lost_routes: Vec<KeptRoute> =
                in_container::routes_of(netlink, index).map_err(kernel_error)?.into_iter().filter(is_meant).collect();
            if !lost_routes.is_empty() {
                self.run.journal.intend(self.run.view(), LinkState { index, lost_routes, ..LinkState::default() })?;
            }
        }
        let container = self.run.system.container_netlink()?;
        for network in networks {
            self.run.fixed.deadline.in_time()?;
            container.delete_connected(index, *network).map_err(|error| {
                let words = format!("{network} dev {name}");
                native_error(error, &words, format_args!("failed to delete route '{words}'"))
            })?;
        }
        Ok(())
    }

    fn list(&mut self, handle: Handle) -> Result<Vec<Route>, OpError> {
        let (index, name) = self.guest.own(handle)?;
        let routes = seen(self, index)?;
        is_listable(&name, routes.len(), "routes")?;
        Ok(routes)
    }

    /// `routes.has`. The guest asks about certain routes, because the container can have many routes, also to one
    /// destination.
    fn has(&mut self, handle: Handle, wanted: &[Route]) -> Result<Vec<bool>, OpError> {
        let (index, name) = self.guest.own(handle)?;
        is_askable(&name, wanted.len(), "routes")?;
        let mut by_destination: HashMap<IpNet, Vec<Route>> = HashMap::new();
        for have in seen(self, index)? {
            by_destination.entry(have.dst).or_default().push(have);
        }
        let mut present = Vec::with_capacity(wanted.len());
        for route in wanted {
            self.run.fixed.deadline.in_time()?;
            let there = by_destination.get(&route.dst.trunc());
            present.push(there.is_some_and(|there| there.iter().any(|have| route.is_met_by(have))));
        }
        Ok(present)
    }
}

/// True if the kernel treats the two routes as one. Then the removal of the new route could remove the existing route.
/// For IPv6 the kernel compares only destination, next hop, metric and table.
fn is_same(have: &Route, new: &Route) -> bool {
    let is_v4 = new.dst.addr().is_ipv4();
    // The metric that the kernel gives to a route without a metric.
    let metric = |route: &Route| route.priority.filter(|metric| *metric != 0).unwrap_or(if is_v4 { 0 } else { 1024 });
    let table = |route: &Route| route.table.unwrap_or(MAIN_TABLE);
    let rest = |route: &Route| (route.source, route.mtu, route.advmss, route.scope.unwrap_or_default());
    have.dst == new.dst.trunc()
        && (have.gateway, metric(have), table(have)) == (new.gateway, metric(new), table(new))
        && (!is_v4 || rest(have) == rest(new))
}

/// Returns the main table's routes through a link, and the routes that a later plugin moved into a table that the
/// record lists.
fn seen(gate: &Gate<'_>, index: u32) -> Result<Vec<Route>, OpError> {
    let netlink = gate.run.system.container_netlink()?;
    let mut routes = netlink.routes(index).map_err(kernel_error)?;
    let tables = source_routes::tables(gate.run, index);
    if !tables.is_empty() {
        let all = netlink.all_routes().map_err(kernel_error)?;
        let is_moved = |table: Option<u32>| table.is_some_and(|table| tables.contains(&table));
        let moved = all.into_iter().filter(|(link, route)| *link == index && is_moved(route.table));
        routes.extend(moved.map(|(_, route)| route));
    }
    Ok(routes)
}
