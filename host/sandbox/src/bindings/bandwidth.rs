//! `postern:cni/bandwidth`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{LinkInfo, ops};

impl wit::bandwidth::Host for State {
    fn limit(
        &mut self,
        ingress: Option<wit::bandwidth::RateLimit>,
        egress: Option<wit::bandwidth::RateLimit>,
    ) -> Result<Option<wit::types::LinkAttributes>, Failure> {
        let ingress = ingress.map(read_rate_limit);
        let egress = egress.map(read_rate_limit);
        let reply: Option<LinkInfo> = self.call(ops::Bandwidth::Limit { ingress, egress })?;
        Ok(reply.map(|shown| shown.into()))
    }

    fn check(
        &mut self,
        ingress: Option<wit::bandwidth::RateLimit>,
        egress: Option<wit::bandwidth::RateLimit>,
    ) -> Result<(), Failure> {
        let ingress = ingress.map(read_rate_limit);
        let egress = egress.map(read_rate_limit);
        self.call(ops::Bandwidth::Check { ingress, egress })
    }

    fn remove(&mut self) -> Result<(), Failure> {
        self.call(ops::Bandwidth::Remove)
    }
}

fn read_rate_limit(given: wit::bandwidth::RateLimit) -> postern_types::RateLimit {
    postern_types::RateLimit { rate: given.rate, burst: given.burst }
}
