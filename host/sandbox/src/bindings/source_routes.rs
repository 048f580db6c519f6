//! `postern:cni/source-routes`.

use super::link::Link;
use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{OpError, RouteSource, ops};
use wasmtime::component::Resource;
use wit::source_routes::Source;

impl wit::source_routes::Host for State {
    fn apply(
        &mut self,
        link: Resource<Link>,
        sources: Vec<Source>,
        table: Option<u32>,
        hints: bool,
    ) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        let sources = sources.iter().map(source).collect::<Result<_, _>>()?;
        self.done(ops::SourceRoutes::Apply { link, sources, table, hints })
    }

    fn check(&mut self) -> Result<(), Failure> {
        self.done(ops::SourceRoutes::Check)
    }

    fn remove(&mut self) -> Result<(), Failure> {
        self.done(ops::SourceRoutes::Remove)
    }
}

fn source(given: &Source) -> Result<RouteSource, OpError> {
    let operation = "source-routes.apply";
    Ok(RouteSource {
        address: parse::text(operation, &given.address)?,
        gateway: parse::maybe(operation, given.gateway.as_ref())?,
    })
}
