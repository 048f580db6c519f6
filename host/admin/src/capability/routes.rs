//! `routes`, for people.

use super::{OWN_ADDRESSES, OperationTexts, Page, list};
use crate::plan::Names;
use crate::sentences::{group, say};
use postern_types::{OpError, Reply, Route, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "set routes",
    always: Some(OWN_ADDRESSES),
    groups: &[
        group(&["add"], |_| say("add routes through its own link, in the container")),
        group(&["remove-connected"], |_| say("remove the kernel's own routes to its networks, in the container")),
        group(&["list", "has"], |_| say("look at the routes through its own link")),
    ],
    keys: &[],
    objects: |_| Vec::new(),
};

impl OperationTexts for ops::Routes {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Add { link, routes } => {
                let routes = list(routes.iter().map(route), "nothing");
                format!("route {routes} through {}, in the container", names.link(*link))
            }
            Self::RemoveConnected { link, networks } => {
                let networks = list(networks, "no network");
                format!("remove the kernel's own routes to {networks} through {}, in the container", names.link(*link))
            }
            Self::List { link } | Self::Has { link, .. } => format!("look at the routes through {}", names.link(*link)),
        }
    }
}

fn route(route: &Route) -> String {
    let via = route.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
    let source = route.source.map(|source| format!(" from {source}")).unwrap_or_default();
    let metric = route.priority.map(|metric| format!(" metric {metric}")).unwrap_or_default();
    let table = route.table.map(|table| format!(" in table {table}")).unwrap_or_default();
    format!("{}{via}{source}{metric}{table}", route.dst)
}
