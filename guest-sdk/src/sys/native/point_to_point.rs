//! `point-to-point` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;

pub(crate) fn ensure(host: &super::veth::HostEnd) -> Result<(), Error> {
    super::ask(postern_types::ops::PointToPoint::Ensure { host: *host })
}
