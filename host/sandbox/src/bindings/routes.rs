//! `postern:cni/routes`.

use super::link::Link;
use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{ErrorCode, OpError, Reply, ops};
use wasmtime::component::Resource;

/// The host's data for a guest's `route`: its texts as given. They are parsed when the route is passed to `add`.
#[derive(Clone, Default)]
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

impl Route {
    fn parsed(&self, operation: &str) -> Result<postern_types::Route, OpError> {
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

impl From<postern_types::Route> for Route {
    fn from(route: postern_types::Route) -> Self {
        Self {
            destination: route.dst.to_string(),
            gateway: route.gateway.map(|gateway| gateway.to_string()),
            source: route.source.map(|source| source.to_string()),
            mtu: route.mtu,
            advmss: route.advmss,
            priority: route.priority,
            table: route.table,
            scope: route.scope,
        }
    }
}

impl wit::routes::Host for State {
    fn add(&mut self, link: Resource<Link>, routes: Vec<Resource<Route>>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        let routes = self.parsed("routes.add", &routes)?;
        self.done(ops::Routes::Add { link, routes })
    }

    fn remove_connected(&mut self, link: Resource<Link>, networks: Vec<String>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        let networks = parse::list("routes.remove-connected", &networks)?;
        self.done(ops::Routes::RemoveConnected { link, networks })
    }

    fn list(&mut self, link: Resource<Link>) -> Result<Vec<Resource<Route>>, Failure> {
        let link = self.table.get(&link)?.handle;
        match self.call(ops::Routes::List { link })? {
            Reply::Routes(routes) => self.pushed(routes),
            other => Err(other.unexpected().into()),
        }
    }

    fn has(&mut self, link: Resource<Link>, routes: Vec<Resource<Route>>) -> Result<Vec<bool>, Failure> {
        let link = self.table.get(&link)?.handle;
        let routes = self.parsed("routes.has", &routes)?;
        match self.call(ops::Routes::Has { link, routes })? {
            Reply::Present(present) => Ok(present),
            other => Err(other.unexpected().into()),
        }
    }
}

impl State {
    fn parsed(&self, operation: &str, routes: &[Resource<Route>]) -> Result<Vec<postern_types::Route>, Failure> {
        routes.iter().map(|route| Ok(self.table.get(route)?.parsed(operation)?)).collect()
    }

    /// Gives the guest these routes: all of them or none. Their number is not the guest's fault.
    fn pushed(&mut self, routes: Vec<postern_types::Route>) -> Result<Vec<Resource<Route>>, Failure> {
        let (number, mut pushed) = (routes.len(), Vec::new());
        for route in routes {
            match self.table.push(Route::from(route)) {
                Ok(resource) => pushed.push(resource),
                Err(_) => {
                    for resource in pushed {
                        self.table.delete(resource)?;
                    }
                    let message = format!("the sandbox has no room for {number} routes");
                    return Err(OpError::new(ErrorCode::Exhausted, "routes.list", message).into());
                }
            }
        }
        Ok(pushed)
    }
}

impl wit::routes::HostRoute for State {
    fn new(&mut self, destination: String) -> wasmtime::Result<Resource<Route>> {
        Ok(self.table.push(Route { destination, ..Route::default() })?)
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
