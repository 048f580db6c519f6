//! `postern:cni/leases`.

use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{LeaseGrant, OpError, Reply, ops};
use wit::leases::{Lease, LeaseRange};

impl wit::leases::Host for State {
    fn reserve(&mut self, sets: Vec<Vec<LeaseRange>>, requested: Vec<String>) -> Result<Vec<Lease>, Failure> {
        let operation = "leases.reserve";
        let sets = parsed(operation, &sets)?;
        let requested = parse::list(operation, &requested)?;
        self.leases(ops::Leases::Reserve { sets, requested })
    }

    fn held(&mut self) -> Result<Vec<Lease>, Failure> {
        self.leases(ops::Leases::Held)
    }

    fn release(&mut self) -> Result<(), Failure> {
        self.done(ops::Leases::Release)
    }

    fn retain(&mut self) -> Result<u32, Failure> {
        match self.call(ops::Leases::Retain)? {
            Reply::Removed(count) => Ok(count),
            other => Err(other.unexpected().into()),
        }
    }

    fn available(&mut self, sets: Vec<Vec<LeaseRange>>) -> Result<bool, Failure> {
        let sets = parsed("leases.available", &sets)?;
        match self.call(ops::Leases::Available { sets })? {
            Reply::Available(available) => Ok(available),
            other => Err(other.unexpected().into()),
        }
    }
}

impl State {
    fn leases(&mut self, operation: ops::Leases) -> Result<Vec<Lease>, Failure> {
        match self.call(operation)? {
            Reply::Leases(leases) => Ok(leases.into_iter().map(Into::into).collect()),
            other => Err(other.unexpected().into()),
        }
    }
}

fn parsed(operation: &str, sets: &[Vec<LeaseRange>]) -> Result<Vec<Vec<postern_types::LeaseRange>>, OpError> {
    let range = |range: &LeaseRange| {
        Ok(postern_types::LeaseRange {
            subnet: parse::text(operation, &range.subnet)?,
            start: parse::maybe(operation, range.start.as_ref())?,
            end: parse::maybe(operation, range.end.as_ref())?,
            gateway: parse::maybe(operation, range.gateway.as_ref())?,
        })
    };
    sets.iter().map(|set| set.iter().map(range).collect()).collect()
}

impl From<LeaseGrant> for Lease {
    fn from(lease: LeaseGrant) -> Self {
        Self { address: lease.address.to_string(), gateway: lease.gateway.map(|gateway| gateway.to_string()) }
    }
}
