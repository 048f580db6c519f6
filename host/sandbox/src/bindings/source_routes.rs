//! `postern:cni/source-routes`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{OpError, RouteSource, ops};
use wasmtime::component::Resource;

impl wit::source_routes::Host for State {
    fn apply(
        &mut self,
        link: Resource<super::link::Link>,
        sources: Vec<wit::source_routes::Source>,
        table: Option<u32>,
        hints: bool,
    ) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        let sources = sources
            .into_iter()
            .map(|given| read_source("source-routes.apply", given))
            .collect::<Result<Vec<_>, OpError>>()?;
        self.call(ops::SourceRoutes::Apply { link, sources, table, hints })
    }

    fn check(&mut self) -> Result<(), Failure> {
        self.call(ops::SourceRoutes::Check)
    }

    fn remove(&mut self) -> Result<(), Failure> {
        self.call(ops::SourceRoutes::Remove)
    }
}

fn read_source(operation: &str, given: wit::source_routes::Source) -> Result<RouteSource, OpError> {
    Ok(RouteSource {
        address: parse::text(operation, &given.address)?,
        gateway: parse::maybe(operation, given.gateway.as_ref())?,
    })
}
