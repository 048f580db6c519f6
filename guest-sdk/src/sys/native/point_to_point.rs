//! `point-to-point` on the build machine.
//!
//! Written by `cargo xtask surface` from `wit/`, which is to be changed in place of this.

use crate::error::Error;

pub(crate) fn ensure(host: &super::veth::HostEnd) -> Result<(), Error> {
    super::ask(postern_types::ops::PointToPoint::Ensure { host: *host })
}
