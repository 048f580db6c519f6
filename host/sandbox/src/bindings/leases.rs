//! `postern:cni/leases`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{LeaseGrant, OpError, ops};

impl wit::leases::Host for State {
    fn reserve(
        &mut self,
        sets: Vec<Vec<wit::leases::LeaseRange>>,
        requested: Vec<String>,
    ) -> Result<Vec<wit::leases::Lease>, Failure> {
        let sets = sets
            .into_iter()
            .map(|given| {
                given
                    .into_iter()
                    .map(|given| read_lease_range("leases.reserve", given))
                    .collect::<Result<Vec<_>, OpError>>()
            })
            .collect::<Result<Vec<_>, OpError>>()?;
        let requested = parse::list("leases.reserve", &requested)?;
        let reply: Vec<LeaseGrant> = self.call(ops::Leases::Reserve { sets, requested })?;
        Ok(reply.into_iter().map(show_lease).collect())
    }

    fn held(&mut self) -> Result<Vec<wit::leases::Lease>, Failure> {
        let reply: Vec<LeaseGrant> = self.call(ops::Leases::Held)?;
        Ok(reply.into_iter().map(show_lease).collect())
    }

    fn release(&mut self) -> Result<(), Failure> {
        self.call(ops::Leases::Release)
    }

    fn retain(&mut self) -> Result<u32, Failure> {
        self.call(ops::Leases::Retain)
    }

    fn available(&mut self, sets: Vec<Vec<wit::leases::LeaseRange>>) -> Result<bool, Failure> {
        let sets = sets
            .into_iter()
            .map(|given| {
                given
                    .into_iter()
                    .map(|given| read_lease_range("leases.available", given))
                    .collect::<Result<Vec<_>, OpError>>()
            })
            .collect::<Result<Vec<_>, OpError>>()?;
        self.call(ops::Leases::Available { sets })
    }
}

fn read_lease_range(operation: &str, given: wit::leases::LeaseRange) -> Result<postern_types::LeaseRange, OpError> {
    Ok(postern_types::LeaseRange {
        subnet: parse::text(operation, &given.subnet)?,
        start: parse::maybe(operation, given.start.as_ref())?,
        end: parse::maybe(operation, given.end.as_ref())?,
        gateway: parse::maybe(operation, given.gateway.as_ref())?,
    })
}

fn show_lease(shown: LeaseGrant) -> wit::leases::Lease {
    wit::leases::Lease { address: shown.address.to_string(), gateway: shown.gateway.map(|shown| shown.to_string()) }
}
