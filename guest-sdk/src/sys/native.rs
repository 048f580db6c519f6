//! On the build machine: what stands for a resource is its number at the fake host.

use crate::fake;
use postern_types::{BridgeInfo, Handle, OpError, Operation, Reply, VethPair};

pub(crate) type Link = Handle;
pub(crate) type HostEnd = Handle;
pub(crate) type Bridge = BridgeInfo;

/// An operation with nothing to tell.
pub(crate) fn done(operation: &Operation) -> Result<(), OpError> {
    match fake::call(operation)? {
        Reply::Done => Ok(()),
        other => Err(other.unexpected()),
    }
}

/// Both ends of a pair, handles and all.
pub(crate) fn pair(pair: VethPair) -> crate::veth::Pair {
    crate::veth::Pair {
        container: crate::link::Link(pair.container.handle),
        host: crate::veth::HostEnd(pair.host.handle),
        container_attributes: pair.container,
        host_attributes: pair.host,
        bridge: pair.bridge,
    }
}
