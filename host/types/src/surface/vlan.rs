//! `vlan`: the attachment's own link as a VLAN of a granted link (IEEE 802.1Q).
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, LinkInfo, OpError, Reply, VlanInfo};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const CREATE: Row = Row::new("vlan.create", "vlan-create", ActsIn::Both, Lasting::Link);
const FIND: Row = Row::new("vlan.find", "vlan-find", ActsIn::Container, Lasting::Nothing);

/// The operations of `vlan`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/vlan.wit` describe its fields")]
pub enum Vlan {
    /// Container's namespace, and the parent's: makes the link under the name `CNI_IFNAME` in VLAN `id`.
    Create { parent: Handle, id: u16, mtu: Option<u32> },
    /// Container's namespace: returns the attachment's link.
    Find,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `vlan.create`.
    fn create(&mut self, parent: Handle, id: u16, mtu: Option<u32>) -> Result<LinkInfo, OpError>;

    /// Answers `vlan.find`.
    fn find(&mut self) -> Result<Option<VlanInfo>, OpError>;
}

impl Vlan {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Create { parent, id, mtu } => node.create(*parent, *id, *mtu).and_then(|reply| Reply::of(&reply)),
            Self::Find => node.find().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Create { parent, id, mtu } => {
                line.add("parent", parent)?;
                line.add("id", id)?;
                line.add("mtu", mtu)?;
            }
            Self::Find => {}
        }
        Ok(())
    }
}

impl From<Vlan> for Operation {
    fn from(operation: Vlan) -> Self {
        Self::Vlan(operation)
    }
}

impl OperationTable for Vlan {
    const ROWS: &'static [Row] = &[CREATE, FIND];

    fn row(&self) -> &'static Row {
        match self {
            Self::Create { .. } => &CREATE,
            Self::Find => &FIND,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        match self {
            Self::Create { parent, .. } => vec![(parent, Takes::Parent)],
            _ => Vec::new(),
        }
    }
}
