//! `routes`, simulated.

use crate::kernel::Kernel;
use crate::links::{EEXIST, ENETDOWN, ENETUNREACH, ESRCH, refused};
use ipnet::IpNet;
use postern_types::{ErrorCode, Handle, OpError, Reply, Route, ops};
use std::net::IpAddr;

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Routes) -> Result<Reply, OpError> {
    match operation {
        ops::Routes::Add { link, routes } => kernel.routes_add(*link, routes),
        ops::Routes::RemoveConnected { link, networks } => kernel.remove_connected(*link, networks),
        ops::Routes::List { link } => Ok(Reply::Routes(kernel.main_routes(*link)?)),
        ops::Routes::Has { link, routes } => {
            let there = kernel.main_routes(*link)?;
            Ok(Reply::Present(routes.iter().map(|wanted| there.iter().any(|have| wanted.is_met_by(have))).collect()))
        }
    }
}

impl Kernel {
    fn routes_add(&mut self, handle: Handle, routes: &[Route]) -> Result<Reply, OpError> {
        let own = self.own_addresses();
        let foreign = |source: &IpAddr| !own.iter().any(|(address, _)| address.addr() == *source);
        if let Some(source) = routes.iter().filter_map(|route| route.source).find(foreign) {
            let message = format!("{source} is not an address of this attachment");
            return Err(OpError::new(ErrorCode::InvalidArgument, source.to_string(), message));
        }
        let link = self.held_mut(handle)?;
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
        Ok(Reply::Done)
    }

    fn remove_connected(&mut self, handle: Handle, networks: &[IpNet]) -> Result<Reply, OpError> {
        let link = self.held_mut(handle)?;
        for network in networks {
            let before = link.routes.len();
            link.routes.retain(|route| route.dst != *network || route.gateway.is_some());
            if link.routes.len() == before {
                return Err(OpError { code: ErrorCode::NotFound, ..refused(ESRCH, network, "no such process") });
            }
        }
        Ok(Reply::Done)
    }

    fn main_routes(&self, handle: Handle) -> Result<Vec<Route>, OpError> {
        let link = self.held(handle)?;
        // Also those that source routing has moved.
        let is_seen = |table: u32| table == 254 || self.rules.iter().any(|(_, own)| *own == table);
        let main = |route: &&Route| link.info.up && route.table.is_none_or(is_seen);
        Ok(link.routes.iter().filter(main).cloned().collect())
    }
}
