//! `postern:cni/point-to-point`.

use super::veth::HostEnd;
use super::{Failure, wit};
use crate::state::State;
use postern_types::ops;
use wasmtime::component::Resource;

impl wit::point_to_point::Host for State {
    fn ensure(&mut self, host: Resource<HostEnd>) -> Result<(), Failure> {
        let host = self.table.get(&host)?.handle;
        self.done(ops::PointToPoint::Ensure { host })
    }
}
