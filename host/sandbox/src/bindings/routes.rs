//! `postern:cni/routes`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{OpError, ops};
use wasmtime::component::Resource;

/// The host's data for a guest's `route`.
#[derive(Clone)]
pub struct Route {
    destination: String,
    gateway: Option<String>,
    source: Option<String>,
    mtu: Option<u32>,
    advmss: Option<u32>,
    priority: Option<u32>,
    table: Option<u32>,
    scope: Option<u8>,
}

impl wit::routes::Host for State {
    fn add(&mut self, link: Resource<super::link::Link>, routes: Vec<Resource<Route>>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        let routes = routes
            .iter()
            .map(|given| Ok(self.table.get(given)?.read("routes.add")?))
            .collect::<Result<_, Failure>>()?;
        self.call(ops::Routes::Add { link, routes })
    }

    fn remove_connected(&mut self, link: Resource<super::link::Link>, networks: Vec<String>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        let networks = parse::list("routes.remove-connected", &networks)?;
        self.call(ops::Routes::RemoveConnected { link, networks })
    }

    fn list(&mut self, link: Resource<super::link::Link>) -> Result<Vec<Resource<Route>>, Failure> {
        let link = self.table.get(&link)?.handle;
        let reply: Vec<postern_types::Route> = self.call(ops::Routes::List { link })?;
        self.push_all("routes", reply.into_iter().map(show_route))
    }

    fn has(&mut self, link: Resource<super::link::Link>, routes: Vec<Resource<Route>>) -> Result<Vec<bool>, Failure> {
        let link = self.table.get(&link)?.handle;
        let routes = routes
            .iter()
            .map(|given| Ok(self.table.get(given)?.read("routes.has")?))
            .collect::<Result<_, Failure>>()?;
        self.call(ops::Routes::Has { link, routes })
    }
}

impl wit::routes::HostRoute for State {
    fn new(&mut self, destination: String) -> wasmtime::Result<Resource<Route>> {
        Ok(self.table.push(Route {
            destination,
            gateway: None,
            source: None,
            mtu: None,
            advmss: None,
            priority: None,
            table: None,
            scope: None,
        })?)
    }

    fn set_gateway(&mut self, route: Resource<Route>, gateway: String) -> wasmtime::Result<()> {
        self.table.get_mut(&route)?.gateway = Some(gateway);
        Ok(())
    }

    fn set_source(&mut self, route: Resource<Route>, source: String) -> wasmtime::Result<()> {
        self.table.get_mut(&route)?.source = Some(source);
        Ok(())
    }

    fn set_mtu(&mut self, route: Resource<Route>, mtu: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&route)?.mtu = Some(mtu);
        Ok(())
    }

    fn set_advmss(&mut self, route: Resource<Route>, advmss: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&route)?.advmss = Some(advmss);
        Ok(())
    }

    fn set_priority(&mut self, route: Resource<Route>, priority: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&route)?.priority = Some(priority);
        Ok(())
    }

    fn set_table(&mut self, route: Resource<Route>, table: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&route)?.table = Some(table);
        Ok(())
    }

    fn set_scope(&mut self, route: Resource<Route>, scope: u8) -> wasmtime::Result<()> {
        self.table.get_mut(&route)?.scope = Some(scope);
        Ok(())
    }

    fn destination(&mut self, route: Resource<Route>) -> wasmtime::Result<String> {
        Ok(self.table.get(&route)?.destination.clone())
    }

    fn gateway(&mut self, route: Resource<Route>) -> wasmtime::Result<Option<String>> {
        Ok(self.table.get(&route)?.gateway.clone())
    }

    fn priority(&mut self, route: Resource<Route>) -> wasmtime::Result<Option<u32>> {
        Ok(self.table.get(&route)?.priority)
    }

    fn drop(&mut self, route: Resource<Route>) -> wasmtime::Result<()> {
        self.table.delete(route)?;
        Ok(())
    }
}

impl Route {
    fn read(&self, operation: &str) -> Result<postern_types::Route, OpError> {
        Ok(postern_types::Route {
            dst: parse::text(operation, &self.destination)?,
            gateway: parse::maybe(operation, self.gateway.as_ref())?,
            source: parse::maybe(operation, self.source.as_ref())?,
            mtu: self.mtu,
            advmss: self.advmss,
            priority: self.priority,
            table: self.table,
            scope: self.scope,
        })
    }
}

fn show_route(shown: postern_types::Route) -> Route {
    Route {
        destination: shown.dst.to_string(),
        gateway: shown.gateway.map(|shown| shown.to_string()),
        source: shown.source.map(|shown| shown.to_string()),
        mtu: shown.mtu,
        advmss: shown.advmss,
        priority: shown.priority,
        table: shown.table,
        scope: shown.scope,
    }
}
