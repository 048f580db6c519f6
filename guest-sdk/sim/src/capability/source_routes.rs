//! `source-routes`, simulated.

use crate::kernel::Kernel;
use postern_types::{ErrorCode, Handle, OpError, Route, RouteSource, host};

/// The first table that the host chooses.
const FIRST: u32 = 100;

impl host::SourceRoutes for Kernel {
    fn apply(&mut self, link: Handle, sources: &[RouteSource], table: Option<u32>, hints: bool) -> Result<(), OpError> {
        if let Some(table) = table.filter(|table| matches!(table, 0 | 253..=255)) {
            let message = format!("table {table} is the kernel's own");
            return Err(OpError::new(ErrorCode::InvalidArgument, table.to_string(), message));
        }
        let mut next = self.rules.iter().map(|(_, table)| table + 1).max().unwrap_or(FIRST).max(FIRST);
        let mut rules = Vec::new();
        let link = self.held_mut(link)?;
        let is_main = |route: &Route| matches!(route.table, None | Some(254));
        let main: Vec<Route> = link.routes.iter().filter(|route| is_main(route)).cloned().collect();
        for source in sources {
            let own = table.unwrap_or(next);
            rules.push((source.address.addr(), own));
            if table.is_none() {
                let net = source.address;
                let is_its = |route: &&Route| {
                    let named = [route.source, route.gateway];
                    named == [None, None] || named.iter().flatten().any(|address| net.contains(address))
                };
                let copies = main.iter().filter(is_its).map(|route| Route { table: Some(own), ..route.clone() });
                link.routes.extend(copies.collect::<Vec<_>>());
                next += 1;
            }
        }
        if table.is_none() {
            link.routes.retain(|route| !is_main(route) || hints && route.gateway.is_none());
        }
        self.rules.extend(rules);
        Ok(())
    }

    fn check(&mut self) -> Result<(), OpError> {
        Ok(())
    }

    fn remove(&mut self) -> Result<(), OpError> {
        let tables: Vec<u32> = self.rules.drain(..).map(|(_, table)| table).collect();
        for link in self.links.values_mut() {
            for route in &mut link.routes {
                if route.table.is_some_and(|table| tables.contains(&table)) {
                    route.table = None;
                }
            }
            let mut kept: Vec<Route> = Vec::new();
            for route in link.routes.drain(..) {
                if !kept.contains(&route) {
                    kept.push(route);
                }
            }
            link.routes = kept;
        }
        Ok(())
    }
}
