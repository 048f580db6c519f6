//! `postern:cni/bandwidth`.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{RateLimit, Reply, ops};
use wit::bandwidth::RateLimit as Limit;

impl wit::bandwidth::Host for State {
    fn limit(
        &mut self,
        ingress: Option<Limit>,
        egress: Option<Limit>,
    ) -> Result<Option<wit::types::LinkAttributes>, Failure> {
        let (ingress, egress) = (ingress.map(Into::into), egress.map(Into::into));
        match self.call(ops::Bandwidth::Limit { ingress, egress })? {
            Reply::MaybeLink(link) => Ok(link.map(Into::into)),
            other => Err(other.unexpected().into()),
        }
    }

    fn check(&mut self, ingress: Option<Limit>, egress: Option<Limit>) -> Result<(), Failure> {
        self.done(ops::Bandwidth::Check { ingress: ingress.map(Into::into), egress: egress.map(Into::into) })
    }

    fn remove(&mut self) -> Result<(), Failure> {
        self.done(ops::Bandwidth::Remove)
    }
}

impl From<Limit> for RateLimit {
    fn from(limit: Limit) -> Self {
        Self { rate: limit.rate, burst: limit.burst }
    }
}
