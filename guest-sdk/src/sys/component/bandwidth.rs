//! `bandwidth` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::bandwidth as wit;
use crate::error::Error;
use postern_types::{LinkInfo, RateLimit};

pub(crate) fn limit(ingress: Option<RateLimit>, egress: Option<RateLimit>) -> Result<Option<LinkInfo>, Error> {
    let got = wit::limit(ingress.map(|value| wire_rate_limit(&value)), egress.map(|value| wire_rate_limit(&value)))
        .map_err(super::failure)?;
    Ok(got.map(super::link_info))
}

pub(crate) fn check(ingress: Option<RateLimit>, egress: Option<RateLimit>) -> Result<(), Error> {
    wit::check(ingress.map(|value| wire_rate_limit(&value)), egress.map(|value| wire_rate_limit(&value)))
        .map_err(super::failure)
}

pub(crate) fn remove() -> Result<(), Error> {
    wit::remove().map_err(super::failure)
}

fn wire_rate_limit(value: &RateLimit) -> wit::RateLimit {
    wit::RateLimit { rate: value.rate, burst: value.burst }
}
