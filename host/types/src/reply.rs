//! The answers of the gate.

use crate::{
    Address, BridgeInfo, DhcpLease, Dns, IpvlanInfo, LeaseGrant, LinkInfo, MacvlanInfo, OpError, Route, SubnetFile,
    VethPair, VlanInfo,
};
use serde::{Deserialize, Serialize};

/// The answer to an [`crate::Operation`] that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", content = "value", rename_all = "kebab-case")]
pub enum Reply {
    /// The operation is done, with nothing to return.
    Done,
    /// A link: `link.attributes`, `veth.wait-running`.
    Link(LinkInfo),
    /// A link, if there is one: `link.own`, `bridge.previous-link`, `bridge.ensure-gateways` (the VLAN gateway), `bandwidth.limit`
    /// (the ifb).
    MaybeLink(Option<LinkInfo>),
    /// `veth.create`.
    Veth(VethPair),
    /// `veth.find`.
    MaybeVeth(Option<VethPair>),
    /// `bridge.ensure`.
    Bridge(BridgeInfo),
    /// `bridge.find`.
    MaybeBridge(Option<BridgeInfo>),
    /// `parent.find`.
    Parent(LinkInfo),
    /// `macvlan.create`.
    Macvlan(MacvlanInfo),
    /// `macvlan.find`.
    MaybeMacvlan(Option<MacvlanInfo>),
    /// `dummy.create`, `vlan.create`, `ipvlan.create`.
    Made(LinkInfo),
    /// `vlan.find`.
    MaybeVlan(Option<VlanInfo>),
    /// `ipvlan.find`.
    MaybeIpvlan(Option<IpvlanInfo>),
    /// `device.find`: `None` if a driver of user space has the device. The link is on the host, and has no handle.
    Device(Option<LinkInfo>),
    /// `device.take`.
    Taken(LinkInfo),
    /// `addresses.list`.
    Addresses(Vec<Address>),
    /// `loopback.addresses`: the state and the addresses of `lo`.
    Loopback {
        /// `lo` is up.
        up: bool,
        /// Its addresses.
        addresses: Vec<Address>,
    },
    /// `routes.list`.
    Routes(Vec<Route>),
    /// `routes.has`, `addresses.has`: an answer to each, in their order.
    Present(Vec<bool>),
    /// `ipam.add`, `delegate.add`: the delegate's result as a CNI 1.1.0 result object.
    Result(String),
    /// `leases.reserve`, `leases.held`.
    Leases(Vec<LeaseGrant>),
    /// `leases.available`.
    Available(bool),
    /// `dhcp.acquire`, `dhcp.check`.
    Lease(DhcpLease),
    /// `resolv-conf.read`.
    Dns(Dns),
    /// `delegate.subnet-file`.
    Subnet(SubnetFile),
    /// The number of removed objects: `leases.retain`, `attachments.collect`.
    Removed(u32),
}

impl Reply {
    /// Returns the error for an answer that does not fit the operation: a fault of the host, never of the guest.
    pub fn unexpected(&self) -> OpError {
        OpError::new(crate::ErrorCode::Kernel, "", format!("the host gave an answer of the wrong kind: {self:?}"))
    }
}
