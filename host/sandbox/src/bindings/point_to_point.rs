//! `postern:cni/point-to-point`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::ops;
use wasmtime::component::Resource;

impl wit::point_to_point::Host for State {
    fn ensure(&mut self, host: Resource<super::veth::HostEnd>) -> Result<(), Failure> {
        let host = self.table.get(&host)?.handle;
        self.call(ops::PointToPoint::Ensure { host })
    }
}
