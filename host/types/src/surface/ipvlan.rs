//! `ipvlan`: the attachment's own link as an ipvlan.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, IpvlanInfo, IpvlanMode, LinkInfo, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const CREATE: Row = Row::new("ipvlan.create", "ipvlan-create", ActsIn::Both, Lasting::Link);
const FIND: Row = Row::new("ipvlan.find", "ipvlan-find", ActsIn::Container, Lasting::Nothing);

/// The operations of `ipvlan`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/ipvlan.wit` describe its fields")]
pub enum Ipvlan {
    /// Container's namespace, and the parent's: makes the link under the name `CNI_IFNAME`, in state down, and in a
    /// mode that policy grants.
    Create { parent: Handle, mode: IpvlanMode, mtu: Option<u32> },
    /// Container's namespace: returns the attachment's link.
    Find,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `ipvlan.create`.
    fn create(&mut self, parent: Handle, mode: IpvlanMode, mtu: Option<u32>) -> Result<LinkInfo, OpError>;

    /// Answers `ipvlan.find`.
    fn find(&mut self) -> Result<Option<IpvlanInfo>, OpError>;
}

impl Ipvlan {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Create { parent, mode, mtu } => node.create(*parent, *mode, *mtu).and_then(|reply| Reply::of(&reply)),
            Self::Find => node.find().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Create { parent, mode, mtu } => {
                line.add("parent", parent)?;
                line.add("mode", mode)?;
                line.add("mtu", mtu)?;
            }
            Self::Find => {}
        }
        Ok(())
    }
}

impl From<Ipvlan> for Operation {
    fn from(operation: Ipvlan) -> Self {
        Self::Ipvlan(operation)
    }
}

impl OperationTable for Ipvlan {
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
