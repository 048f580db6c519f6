//! `bandwidth` on the build machine.
//!
//! Written by `cargo xtask surface` from `wit/`, which is to be changed in place of this.

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
