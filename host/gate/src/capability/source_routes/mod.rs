//! `source-routes`: rules and tables for the attachment's own addresses, in the container's namespace.
//!
//! The guest names addresses of the attachment, and their gateways. This module finds all other data, such as free
//! tables and the link's routes. The rules and routes have the native plugin's form and order.

pub mod effect;

use crate::capability::addresses::foreign_error;
pub(crate) use crate::capability::facts::ALWAYS as FACTS;
use crate::capability::shared::may_be_native;
use crate::capability::shared::multipath::{self, is_multipath};
use crate::capability::source_routes::effect::{SourceRule, lock};
use crate::capability::vrf::effect as vrf;
use crate::context::{AttachmentState, Context, Journal, View};
use crate::effect::SourceRoutes;
use crate::errors::{kernel_error, native_error};
use crate::gate::Gate;
use crate::in_container::{as_far_as_possible, listed_as_far_as_possible};
use crate::{collect, others};
use ipnet::IpNet;
use postern_kernel::{MAIN_TABLE, Netlink, RoutingRule};
use postern_types::{ErrorCode, Handle, KeptRoute, OpError, Route, RouteSource, WholeRoute, host};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The first table that the host chooses, as the native plugin does.
const FIRST_TABLE: u32 = 100;

/// The origin of a route that a program made, `RTPROT_BOOT`.
const OF_PROGRAM: u8 = 3;

/// The scope of a route to a network of the link itself, `RT_SCOPE_LINK`.
const ON_LINK: u8 = 253;

impl host::SourceRoutes for Gate<'_> {
    fn apply(
        &mut self,
        handle: Handle,
        sources: &[RouteSource],
        table: Option<u32>,
        hints: bool,
    ) -> Result<(), OpError> {
        let (index, name) = self.guest.own(handle)?;
        self.common.add_addresses(&name, sources.len())?;
        for source in sources {
            is_own(self, source)?;
        }
        may_be_named(table, "not for the senders of one attachment")?;
        let run = &mut *self.run;
        let _lock = lock(run.view())?;
        let netlink = run.system.container_netlink()?;
        let rules = netlink.rules().map_err(kernel_error)?;
        let whole = netlink.whole_routes().map_err(kernel_error)?;
        let routes: Vec<(u32, KeptRoute)> = whole.iter().flat_map(WholeRoute::each).collect();
        let mut effect = match table {
            Some(table) => in_table(run.own, index, sources, table, &rules, &routes)?,
            None => in_free_tables(run.journal, index, sources, hints, &rules, &routes)?,
        };
        let is_shared =
            |whole: &WholeRoute| is_multipath(whole, index) && whole.hops.iter().any(|hop| hop.link != index);
        let is_left = |whole: &WholeRoute| effect.moved.iter().any(|kept| whole.is_of(kept));
        effect.multipath = whole.into_iter().filter(|whole| is_shared(whole) && is_left(whole)).collect();
        let recorded = effect.routes.len() + effect.hints.len() + effect.moved.len();
        self.common.add_routes(&name, recorded).map_err(|error| {
            let has = effect.moved.len();
            let message = format!("\"{name}\" has {has} routes in the container: with their copies, {}", error.message);
            OpError::new(error.code, &name, message)
                .hint("remove routes of the link in the container, or name a `table`: then no route moves")
        })?;
        run.journal.intend(run.view(), effect.clone())?;
        carry_out(run.view(), &effect)
    }

    fn check(&mut self) -> Result<(), OpError> {
        let run = &*self.run;
        let noted = run.journal.record().map(|record| record.effects(Some(run.journal.section()))).unwrap_or_default();
        let effects: Vec<&SourceRoutes> = noted.iter().filter_map(|noted| SourceRoutes::of(&noted.effect)).collect();
        if effects.is_empty() {
            return Ok(());
        }
        let netlink = run.system.container_netlink()?;
        let rules = netlink.rules().map_err(kernel_error)?;
        let routes = netlink.kept_routes().map_err(kernel_error)?;
        for effect in effects {
            // The routes are not checked if a later plugin put the link into a VRF: the kernel has then flushed the
            // tables.
            let is_in_vrf = vrf::tables(run, effect.index).next().is_some();
            let routes = if is_in_vrf { None } else { Some(&*routes) };
            if let Some(what) = effect.missing(&rules, routes) {
                return Err(OpError::new(ErrorCode::Mismatch, &run.request.ifname, what));
            }
        }
        Ok(())
    }

    fn remove(&mut self) -> Result<(), OpError> {
        let run = &mut *self.run;
        run.journal.only_of_this_run(run.request, SourceRoutes::is, "source routing")?;
        collect::take_back(run, SourceRoutes::is)?;
        if may_be_native::<SourceRoutes>(run) { remove_native(run) } else { Ok(()) }
    }
}

/// Checks that a source is the attachment's address, and that its gateway can be reached through the link.
fn is_own(gate: &Gate<'_>, source: &RouteSource) -> Result<(), OpError> {
    let Some(own) = gate.run.own.addresses.iter().find(|own| own.net == source.address) else {
        return Err(foreign_error(gate, &source.address));
    };
    let Some(gateway) = source.gateway else { return Ok(()) };
    let is_link_local = matches!(gateway, IpAddr::V6(gateway) if gateway.is_unicast_link_local());
    let is_near = own.net.contains(&gateway) || is_link_local || own.gateway == Some(gateway);
    if is_near && gateway.is_ipv4() == own.net.addr().is_ipv4() && gateway != own.net.addr() {
        return Ok(());
    }
    let message = format!("gateway {gateway} does not lie in the network of {}, nor on its link", own.net);
    Err(OpError::new(ErrorCode::InvalidArgument, gateway.to_string(), message)
        .hint("name a gateway in the network of the address"))
}

/// Refuses a table that the kernel reserves. `because` is the rest of the reason.
pub(crate) fn may_be_named(table: Option<u32>, because: &str) -> Result<(), OpError> {
    let Some(table) = table.filter(|table| is_reserved(*table)) else { return Ok(()) };
    let message = format!("table {table} is the kernel's own, and {because}");
    Err(OpError::new(ErrorCode::InvalidArgument, table.to_string(), message)
        .hint("name a table from 1 to 252, or of 256 and more"))
}

pub(crate) fn lowest_free(from: u32, used: &BTreeSet<u32>) -> Result<u32, OpError> {
    let free = (from..u32::MAX).find(|table| !used.contains(table) && !is_reserved(*table));
    free.ok_or_else(|| OpError::new(ErrorCode::Exhausted, "tables", "no routing table is free"))
}

/// True for `unspec`, `default`, `main` and `local`: every sender uses them (linux/rtnetlink.h).
pub(crate) fn is_reserved(table: u32) -> bool {
    table == 0 || (253..=255).contains(&table)
}

/// Plans rules to a table that the network names. The table must not belong to another attachment.
fn in_table(
    own: &AttachmentState,
    index: u32,
    sources: &[RouteSource],
    table: u32,
    rules: &[RoutingRule],
    routes: &[(u32, KeptRoute)],
) -> Result<SourceRoutes, OpError> {
    let is_own = |source: &IpNet| own.addresses.iter().any(|own| IpNet::from(own.net.addr()) == *source);
    let of_others = rules.iter().find(|rule| rule.table == table && !is_own(&rule.source));
    let through_others = routes.iter().find(|(link, kept)| kept.route.table == Some(table) && *link != index);
    let why = match (of_others, through_others) {
        (Some(rule), _) => format!("serves senders in {}", rule.source),
        (None, Some((_, kept))) => format!("has a route to {} through another link", kept.route.dst),
        (None, None) => {
            let rules = sources.iter().map(|source| SourceRule { source: source.address.addr(), table }).collect();
            return Ok(SourceRoutes { index, rules, ..SourceRoutes::default() });
        }
    };
    let message = format!("table {table} is in use in this container: it {why}");
    Err(OpError::new(ErrorCode::Exists, table.to_string(), message)
        .hint("name another table, or leave `table` out: then the host chooses one"))
}

/// Plans rules to unused tables, and the routes of these tables.
fn in_free_tables(
    journal: &Journal,
    index: u32,
    sources: &[RouteSource],
    hints: bool,
    rules: &[RoutingRule],
    routes: &[(u32, KeptRoute)],
) -> Result<SourceRoutes, OpError> {
    let mut used: BTreeSet<u32> = rules.iter().map(|rule| rule.table).collect();
    used.extend(routes.iter().filter_map(|(_, kept)| kept.route.table));
    let of_link = routes.iter().filter(|(link, kept)| *link == index && kept.route.table == Some(MAIN_TABLE));
    let moved: Vec<KeptRoute> = of_link.map(|(_, kept)| kept.clone()).collect();
    // An earlier call for this attachment may have moved routes of the link already.
    let mut known = moved.clone();
    for earlier in journal.recorded::<SourceRoutes>().into_iter().filter(|earlier| earlier.index == index) {
        known.extend(earlier.moved.into_iter().filter(|kept| !moved.contains(kept)));
    }
    // The link's own networks come before routes through its gateways.
    known.sort_by_key(|kept| kept.route.gateway.is_some());
    let mut effect = SourceRoutes { index, ..SourceRoutes::default() };
    for source in sources {
        let net = source.address;
        let table = lowest_free(FIRST_TABLE, &used)?;
        used.insert(table);
        effect.rules.push(SourceRule { source: net.addr(), table });
        let to_table = |route: &Route| Route { table: Some(table), ..route.clone() };
        let is_its = |route: &Route| {
            let named = [route.source, route.gateway];
            named == [None, None] || named.iter().flatten().any(|address| net.contains(address))
        };
        // The chosen gateway replaces other default routes.
        let is_other =
            |route: &Route| route.dst.prefix_len() == 0 && source.gateway.is_some() && route.gateway != source.gateway;
        let copies = known.iter().filter(|kept| is_its(&kept.route) && !is_other(&kept.route));
        let copies: Vec<KeptRoute> =
            copies.map(|kept| KeptRoute { route: to_table(&kept.route), protocol: kept.protocol }).collect();
        effect.routes.extend(copies.iter().filter(|kept| kept.route.gateway.is_none()).cloned());
        effect.routes.extend(source.gateway.map(|gateway| default_route(gateway, table)));
        effect.routes.extend(copies.into_iter().filter(|kept| kept.route.gateway.is_some()));
        if hints {
            let (dst, source) = (net.trunc(), Some(net.addr()));
            let route = Route { dst, source, table: Some(MAIN_TABLE), scope: Some(ON_LINK), ..Route::default() };
            effect.hints.push(KeptRoute { route, protocol: OF_PROGRAM });
        }
    }
    effect.moved = moved;
    Ok(effect)
}

fn default_route(gateway: IpAddr, table: u32) -> KeptRoute {
    let any: IpAddr = if gateway.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let dst = IpNet::new_assert(any, 0);
    let route = Route { dst, gateway: Some(gateway), table: Some(table), ..Route::default() };
    KeptRoute { route, protocol: OF_PROGRAM }
}

fn carry_out(view: View<'_>, effect: &SourceRoutes) -> Result<(), OpError> {
    let netlink = view.system.container_netlink()?;
    for SourceRule { source, table } in &effect.rules {
        view.fixed.deadline.in_time()?;
        let added = netlink.add_source_rule(*source, *table);
        added.map_err(|error| native_error(error, &source.to_string(), "failed to add rule"))?;
    }
    for kept in &effect.routes {
        view.fixed.deadline.in_time()?;
        put(netlink, effect.index, kept)?;
    }
    // With hints, the main table keeps the on-link routes, because a hint replaces each of them. IPv6 has no scopes.
    let leaves = |kept: &&KeptRoute| effect.hints.is_empty() || kept.route.scope != Some(ON_LINK);
    let refused = |error, kept: &KeptRoute| native_error(error, &kept.route.dst.to_string(), "failed to delete route");
    for kept in effect.moved.iter().filter(leaves).filter(|kept| !multipath::has(&effect.multipath, kept)) {
        view.fixed.deadline.in_time()?;
        netlink.delete_route(effect.index, &kept.route).map_err(|error| refused(error, kept))?;
    }
    for whole in &effect.multipath {
        multipath::take_out(netlink, effect.index, whole).map_err(|error| refused(error, &whole.kept))?;
    }
    for kept in &effect.hints {
        view.fixed.deadline.in_time()?;
        // Another link may have a route to the same network. So only the attachment's own route is replaced.
        let refused = |error| native_error(error, &kept.route.dst.to_string(), "failed to add route");
        netlink.delete_route(effect.index, &kept.route).map_err(refused)?;
        netlink.put_route(effect.index, kept, false).map_err(refused)?;
    }
    Ok(())
}

fn put(netlink: &Netlink, index: u32, kept: &KeptRoute) -> Result<(), OpError> {
    netlink.put_route(index, kept, true).map_err(|error| match kept.route.gateway {
        Some(gateway) if kept.route.dst.prefix_len() == 0 => {
            native_error(error, &gateway.to_string(), format!("Failed to add default route to {gateway}"))
        }
        _ => native_error(error, &kept.route.dst.to_string(), "failed to add route"),
    })
}

/// Removes the rules for the addresses of the attachment's link. If the network names a table, only rules to this table
/// are removed. A native plugin's DEL removes the same rules. The kernel empties the tables when the link is
/// removed.
fn remove_native(run: &Context) -> Result<(), OpError> {
    let Some(container) = run.system.container() else { return Ok(()) };
    let _lock = lock(run.view())?;
    let netlink = container.netlink().map_err(kernel_error)?;
    let Some(link) = as_far_as_possible(|| netlink.link_by_name(&run.request.ifname))? else { return Ok(()) };
    if others::spares(run, &link)? {
        return Ok(());
    }
    let table = run.request.conf.fields().int("table").ok().flatten();
    let addresses = listed_as_far_as_possible(|| netlink.addresses(link.index))?;
    for rule in listed_as_far_as_possible(|| netlink.rules())? {
        run.fixed.deadline.in_time()?;
        let is_ours = addresses.iter().any(|have| IpNet::from(have.net.addr()) == rule.source);
        if is_ours && table.is_none_or(|table| table == i64::from(rule.table)) {
            as_far_as_possible(|| netlink.delete_source_rule(rule.source.addr(), rule.table))?;
        }
    }
    Ok(())
}
