//! `bridge`: the bridge of the host that policy grants, and this attachment's port on it.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{BridgeInfo, Handle, LinkInfo, OpError, PortSpec, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const ATTACH: Row = Row::new("bridge.attach", "bridge-attach", ActsIn::Host, Lasting::Part);
const ENSURE_GATEWAYS: Row = Row::new("bridge.ensure-gateways", "bridge-ensure-gateways", ActsIn::Host, Lasting::Node);
const ENSURE: Row = Row::new("bridge.ensure", "bridge-ensure", ActsIn::Host, Lasting::Node);
const FIND: Row = Row::new("bridge.find", "bridge-find", ActsIn::Host, Lasting::Nothing);
const PREVIOUS_LINK: Row = Row::new("bridge.previous-link", "bridge-previous-link", ActsIn::Host, Lasting::Nothing);

/// The operations of `bridge`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/bridge.wit` describe its fields")]
pub enum Bridge {
    /// Host's namespace: makes the attachment's own host end, or its `previous-link`, a port of this bridge, with
    /// these settings.
    Attach { bridge: Handle, host: Handle, port: PortSpec },
    /// Host's namespace: adds the gateway addresses of this attachment's IPAM result to the bridge, if policy
    /// grants gateways.
    EnsureGateways { bridge: Handle, port: PortSpec, force: bool },
    /// Host's namespace: makes a missing bridge, sets it up, and makes it ignore router advertisements.
    Ensure { name: String, mtu: Option<u32>, vlan_filtering: bool, promisc: bool },
    /// Looks at the bridge.
    Find { name: String },
    /// Returns the link of the host that an earlier plugin made.
    PreviousLink,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `bridge.attach`.
    fn attach(&mut self, bridge: Handle, host: Handle, port: &PortSpec) -> Result<(), OpError>;

    /// Answers `bridge.ensure-gateways`.
    fn ensure_gateways(&mut self, bridge: Handle, port: &PortSpec, force: bool) -> Result<Option<LinkInfo>, OpError>;

    /// Answers `bridge.ensure`.
    fn ensure(
        &mut self,
        name: &str,
        mtu: Option<u32>,
        vlan_filtering: bool,
        promisc: bool,
    ) -> Result<BridgeInfo, OpError>;

    /// Answers `bridge.find`.
    fn find(&mut self, name: &str) -> Result<Option<BridgeInfo>, OpError>;

    /// Answers `bridge.previous-link`.
    fn previous_link(&mut self) -> Result<Option<LinkInfo>, OpError>;
}

impl Bridge {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Attach { bridge, host, port } => {
                node.attach(*bridge, *host, port).and_then(|reply| Reply::of(&reply))
            }
            Self::EnsureGateways { bridge, port, force } => {
                node.ensure_gateways(*bridge, port, *force).and_then(|reply| Reply::of(&reply))
            }
            Self::Ensure { name, mtu, vlan_filtering, promisc } => {
                node.ensure(name, *mtu, *vlan_filtering, *promisc).and_then(|reply| Reply::of(&reply))
            }
            Self::Find { name } => node.find(name).and_then(|reply| Reply::of(&reply)),
            Self::PreviousLink => node.previous_link().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Attach { bridge, host, port } => {
                line.add("bridge", bridge)?;
                line.add("host", host)?;
                line.add("port", port)?;
            }
            Self::EnsureGateways { bridge, port, force } => {
                line.add("bridge", bridge)?;
                line.add("port", port)?;
                line.add("force", force)?;
            }
            Self::Ensure { name, mtu, vlan_filtering, promisc } => {
                line.add("name", name)?;
                line.add("mtu", mtu)?;
                line.add("vlan_filtering", vlan_filtering)?;
                line.add("promisc", promisc)?;
            }
            Self::Find { name } => {
                line.add("name", name)?;
            }
            Self::PreviousLink => {}
        }
        Ok(())
    }
}

impl From<Bridge> for Operation {
    fn from(operation: Bridge) -> Self {
        Self::Bridge(operation)
    }
}

impl OperationTable for Bridge {
    const ROWS: &'static [Row] = &[ATTACH, ENSURE_GATEWAYS, ENSURE, FIND, PREVIOUS_LINK];

    fn row(&self) -> &'static Row {
        match self {
            Self::Attach { .. } => &ATTACH,
            Self::EnsureGateways { .. } => &ENSURE_GATEWAYS,
            Self::Ensure { .. } => &ENSURE,
            Self::Find { .. } => &FIND,
            Self::PreviousLink => &PREVIOUS_LINK,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        match self {
            Self::Attach { bridge, host, .. } => vec![(bridge, Takes::Bridge), (host, Takes::Port)],
            Self::EnsureGateways { bridge, .. } => vec![(bridge, Takes::Bridge)],
            _ => Vec::new(),
        }
    }
}
