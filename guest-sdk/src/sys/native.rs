//! The way to the fake host on the build machine: a number stands for each resource.

use crate::error::Error;
use crate::fake;
use postern_types::{BridgeInfo, Handle, Mac, MacvlanInfo, MacvlanMode, Operation, Reply, VethPair};
use std::cell::Cell;

pub(crate) type Link = Handle;
pub(crate) type HostEnd = Handle;
pub(crate) type Bridge = BridgeInfo;
pub(crate) type Parent = Handle;

/// The stand-in for the resource `options` of `veth`.
#[derive(Debug, Default)]
pub(crate) struct VethOptions {
    pub mtu: Cell<Option<u32>>,
    pub mac: Cell<Option<Mac>>,
}

impl VethOptions {
    pub(crate) fn new() -> Self {
        Self::default()
    }
}

/// The stand-in for the resource `options` of `bridge`.
#[derive(Debug, Default)]
pub(crate) struct BridgeOptions {
    pub mtu: Cell<Option<u32>>,
    pub vlan_filtering: Cell<bool>,
    pub promisc: Cell<bool>,
}

impl BridgeOptions {
    pub(crate) fn new() -> Self {
        Self::default()
    }
}

/// The substitute for the resource `options` of `macvlan`.
#[derive(Debug)]
pub(crate) struct MacvlanOptions {
    pub mode: MacvlanMode,
    pub mtu: Cell<Option<u32>>,
    pub mac: Cell<Option<Mac>>,
    pub queue: Cell<Option<u32>>,
}

pub(crate) fn macvlan_options(mode: MacvlanMode) -> MacvlanOptions {
    MacvlanOptions { mode, mtu: Cell::default(), mac: Cell::default(), queue: Cell::default() }
}

/// A macvlan link, handle and all.
pub(crate) fn macvlan_link(made: MacvlanInfo) -> crate::macvlan::Macvlan {
    crate::macvlan::Macvlan { link: crate::link::Link(made.link.handle), attributes: made.link, mode: made.mode }
}

/// Runs an operation that returns no value.
pub(crate) fn done(operation: impl Into<Operation>) -> Result<(), Error> {
    match fake::call(&operation.into())? {
        Reply::Done => Ok(()),
        other => Err(other.unexpected().into()),
    }
}

/// Returns both ends of a pair with their handles.
pub(crate) fn pair(pair: VethPair) -> crate::veth::Pair {
    crate::veth::Pair {
        container: crate::link::Link(pair.container.handle),
        host: crate::veth::HostEnd(pair.host.handle),
        container_attributes: pair.container,
        host_attributes: pair.host,
        bridge: pair.bridge,
    }
}
