//! `routes`, simulated.

use crate::kernel::Kernel;
use crate::links::{EEXIST, ENETDOWN, ENETUNREACH, ESRCH, refused};
use ipnet::IpNet;
use postern_types::{ErrorCode, Handle, OpError, Route, host};
use std::net::IpAddr;

impl host::Routes for Kernel {
    fn add(&mut self, link: Handle, routes: &[Route]) -> Result<(), OpError> {
        let own = self.own_addresses();
        let foreign = |source: &IpAddr| !own.iter().any(|(address, _)| address.addr() == *source);
        if let Some(source) = routes.iter().filter_map(|route| route.source).find(foreign) {
            let message = format!("{source} is not an address of this attachment");
            return Err(OpError::new(ErrorCode::InvalidArgument, source.to_string(), message));
        }
        let link = self.held_mut(link)?;
        for route in routes {
            let describe = || format!("{} via {:?}", route.dst, route.gateway);
            let near = |gateway: &IpAddr| {
                let on_link = |known: &Route| known.gateway.is_none() && known.dst.contains(gateway);
                link.routes.iter().any(on_link)
            };
            let same = |known: &Route| {
                (known.dst, known.gateway, known.priority, known.table)
                    == (route.dst, route.gateway, route.priority, route.table)
            };
            if !link.info.up {
                return Err(refused(ENETDOWN, describe(), "network is down"));
            }
            if route.gateway.as_ref().is_some_and(|gateway| !near(gateway)) {
                return Err(refused(ENETUNREACH, describe(), "network is unreachable"));
            }
            if link.routes.iter().any(same) {
                return Err(refused(EEXIST, describe(), "file exists"));
            }
            link.routes.push(route.clone());
        }
        Ok(())
    }

    fn remove_connected(&mut self, link: Handle, networks: &[IpNet]) -> Result<(), OpError> {
        let link = self.held_mut(link)?;
        for network in networks {
            let before = link.routes.len();
            link.routes.retain(|route| route.dst != *network || route.gateway.is_some());
            if link.routes.len() == before {
                return Err(OpError { code: ErrorCode::NotFound, ..refused(ESRCH, network, "no such process") });
            }
        }
        Ok(())
    }

    fn list(&mut self, link: Handle) -> Result<Vec<Route>, OpError> {
        self.main_routes(link)
    }

    fn has(&mut self, link: Handle, routes: &[Route]) -> Result<Vec<bool>, OpError> {
        let there = self.main_routes(link)?;
        Ok(routes.iter().map(|wanted| there.iter().any(|have| wanted.is_met_by(have))).collect())
    }
}

impl Kernel {
    fn main_routes(&self, link: Handle) -> Result<Vec<Route>, OpError> {
        let link = self.held(link)?;
        // Routes that source routing has moved count too.
        let is_seen = |table: u32| table == 254 || self.rules.iter().any(|(_, own)| *own == table);
        let main = |route: &&Route| link.info.up && route.table.is_none_or(is_seen);
        Ok(link.routes.iter().filter(main).cloned().collect())
    }
}
