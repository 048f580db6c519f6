//! The effect of source routing: rules and tables for the attachment's own addresses, and the routes that moved into
//! these tables.
//!
//! Rules and routes are in the container's namespace, where root can change them. They are found by the record: a rule
//! by sender and table, a route by table, link, destination and gateway. A missing rule or route is no error.

use crate::capability::leaves::EffectKind;
use crate::capability::shared::multipath;
use crate::capability::vrf::effect as vrf;
use crate::context::{Context, View};
use crate::errors::{kernel_error, state_error};
use crate::in_container::{as_far_as_possible, give_routes};
use crate::right::Right;
use postern_kernel::{Netlink, RoutingRule};
use postern_state::RoutingLock;
use postern_types::{KeptRoute, OpError, Route, WholeRoute};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The source routing that one call made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRoutes {
    /// The link's index in the container's namespace. Root in the container cannot change the index.
    pub index: u32,
    /// The rules.
    pub rules: Vec<SourceRule>,
    /// The routes in the tables of these rules, in the order in which they can be made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<KeptRoute>,
    /// The link's earlier routes in the main table. With hints, some of these routes are not removed, but replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<KeptRoute>,
    /// The IPv4 routes among `moved` that also have next hops of other links, with these next hops. Earlier builds know
    /// only `moved`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub multipath: Vec<WholeRoute>,
    /// The routes to the link's own networks that were put into the main table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<KeptRoute>,
}

/// A rule: packets of this sender are routed by this table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRule {
    /// The sender, an address of the attachment.
    pub source: IpAddr,
    /// The table.
    pub table: u32,
}

impl SourceRoutes {
    /// Names a rule or route that is missing. Without `routes` only the rules are checked.
    pub fn missing(&self, rules: &[RoutingRule], routes: Option<&[(u32, KeptRoute)]>) -> Option<String> {
        let stands = |own: &SourceRule| {
            rules.iter().any(|rule| rule.table == own.table && rule.source == ipnet::IpNet::from(own.source))
        };
        if let Some(rule) = self.rules.iter().find(|rule| !stands(rule)) {
            return Some(format!("the rule is gone: from {} to table {}", rule.source, rule.table));
        }
        self.missing_route(routes?.iter().map(|(link, kept)| (*link, &kept.route)))
    }

    /// Names a route that is missing.
    pub fn missing_route<'r>(&self, routes: impl Iterator<Item = (u32, &'r Route)> + Clone) -> Option<String> {
        let gone = self.routes.iter().map(|kept| &kept.route).find(|own| {
            !routes.clone().any(|(link, route)| {
                let is_there = route.dst == own.dst.trunc() && route.gateway == own.gateway;
                link == self.index && route.table == own.table && is_there
            })
        })?;
        let via = gone.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
        Some(format!("the route to {}{via} is gone from table {}", gone.dst, gone.table.unwrap_or_default()))
    }

    fn take_back(&self, run: &Context, netlink: &Netlink) -> Result<(), OpError> {
        for rule in &self.rules {
            run.fixed.deadline.in_time()?;
            as_far_as_possible(|| netlink.delete_source_rule(rule.source, rule.table))?;
        }
        for kept in self.routes.iter().rev().chain(&self.hints) {
            run.fixed.deadline.in_time()?;
            as_far_as_possible(|| netlink.delete_route(self.index, &kept.route))?;
        }
        // Routes are restored only if the link exists and is up.
        if as_far_as_possible(|| netlink.link_by_index(self.index))?.is_some_and(|link| link.up) {
            let moved = |is_wanted: &dyn Fn(&KeptRoute) -> bool| {
                give_routes(run.fixed, netlink, self.index, self.moved.iter().rev().filter(|kept| is_wanted(kept)))
            };
            // Multipath routes come last, because the other routes lead to their gateways.
            moved(&|kept| !multipath::has(&self.multipath, kept))?;
            for whole in &self.multipath {
                run.fixed.deadline.in_time()?;
                if !multipath::put_back(netlink, self.index, whole) {
                    moved(&|kept| whole.is_of(kept))?;
                }
            }
        }
        Ok(())
    }
}

impl EffectKind for SourceRoutes {
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        let Some(container) = run.journal.container_with(run.system, "source routing")? else {
            return Ok(());
        };
        let _lock = lock(run.view())?;
        self.take_back(run, container.netlink().map_err(kernel_error)?)
    }

    fn words(&self) -> String {
        let rules: Vec<String> =
            self.rules.iter().map(|rule| format!("from {} by table {}", rule.source, rule.table)).collect();
        format!("source routing {}", rules.join(", "))
    }

    fn own_addresses(&self) -> Vec<IpAddr> {
        self.rules.iter().map(|rule| rule.source).collect()
    }

    fn right(&self) -> Right<'_> {
        Right::Container
    }
}

pub(crate) fn lock(view: View<'_>) -> Result<RoutingLock, OpError> {
    let cookie = view.system.container_required()?.cookie().map_err(kernel_error)?;
    RoutingLock::take(&view.fixed.places.state, cookie, view.fixed.deadline.answer_by()).map_err(state_error)
}

/// Returns the recorded tables into which a plugin of this attachment moved the routes of this link.
pub(crate) fn tables(run: &Context, index: u32) -> Vec<u32> {
    let recorded = run.journal.recorded::<SourceRoutes>().into_iter();
    let own = recorded.filter(|effect| effect.index == index && !effect.routes.is_empty());
    own.flat_map(|effect| effect.rules).map(|rule| rule.table).chain(vrf::tables(run, index)).collect()
}
