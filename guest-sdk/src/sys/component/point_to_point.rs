//! `point-to-point` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::point_to_point as wit;
use crate::error::Error;

pub(crate) fn ensure(host: &super::veth::HostEnd) -> Result<(), Error> {
    wit::ensure(host).map_err(super::failure)
}
