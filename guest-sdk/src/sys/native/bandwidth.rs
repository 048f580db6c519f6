//! `bandwidth` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::{LinkInfo, RateLimit};

pub(crate) fn limit(ingress: Option<RateLimit>, egress: Option<RateLimit>) -> Result<Option<LinkInfo>, Error> {
    super::ask(postern_types::ops::Bandwidth::Limit { ingress, egress })
}

pub(crate) fn check(ingress: Option<RateLimit>, egress: Option<RateLimit>) -> Result<(), Error> {
    super::ask(postern_types::ops::Bandwidth::Check { ingress, egress })
}

pub(crate) fn remove() -> Result<(), Error> {
    super::ask(postern_types::ops::Bandwidth::Remove)
}
