//! `macvlan`: the attachment's own link as a macvlan.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, Mac, MacvlanInfo, MacvlanMode, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const CREATE: Row = Row::new("macvlan.create", "macvlan-create", ActsIn::Both, Lasting::Link);
const FIND: Row = Row::new("macvlan.find", "macvlan-find", ActsIn::Container, Lasting::Nothing);

/// The operations of `macvlan`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/macvlan.wit` describe its fields")]
pub enum Macvlan {
    /// Container's namespace, and the parent's: makes the link under the name `CNI_IFNAME`.
    Create { parent: Handle, mode: MacvlanMode, mtu: Option<u32>, mac: Option<Mac>, queue: Option<u32> },
    /// Container's namespace: returns the attachment's link.
    Find,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `macvlan.create`.
    fn create(
        &mut self,
        parent: Handle,
        mode: MacvlanMode,
        mtu: Option<u32>,
        mac: Option<Mac>,
        queue: Option<u32>,
    ) -> Result<MacvlanInfo, OpError>;

    /// Answers `macvlan.find`.
    fn find(&mut self) -> Result<Option<MacvlanInfo>, OpError>;
}

impl Macvlan {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Create { parent, mode, mtu, mac, queue } => {
                node.create(*parent, *mode, *mtu, *mac, *queue).and_then(|reply| Reply::of(&reply))
            }
            Self::Find => node.find().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Create { parent, mode, mtu, mac, queue } => {
                line.add("parent", parent)?;
                line.add("mode", mode)?;
                line.add("mtu", mtu)?;
                line.add("mac", mac)?;
                line.add("queue", queue)?;
            }
            Self::Find => {}
        }
        Ok(())
    }
}

impl From<Macvlan> for Operation {
    fn from(operation: Macvlan) -> Self {
        Self::Macvlan(operation)
    }
}

impl OperationTable for Macvlan {
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
