//! `vrf`: the attachment's own link in a VRF (virtual routing and forwarding) of the container.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const JOIN: Row = Row::new("vrf.join", "vrf-join", ActsIn::Container, Lasting::Attachment);
const CHECK: Row = Row::new("vrf.check", "vrf-check", ActsIn::Container, Lasting::Nothing);
const LEAVE: Row = Row::new("vrf.leave", "vrf-leave", ActsIn::Container, Lasting::Removal);

/// The operations of `vrf`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/vrf.wit` describe its fields")]
pub enum Vrf {
    /// Container's namespace: puts the own link into the VRF of this name.
    Join { link: Handle, name: String, table: Option<u32> },
    /// Compares the VRF of the own link with the VRF of this name.
    Check { name: String },
    /// Container's namespace: takes the own link out of the VRF in the record, and restores routes and addresses.
    Leave,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `vrf.join`.
    fn join(&mut self, link: Handle, name: &str, table: Option<u32>) -> Result<(), OpError>;

    /// Answers `vrf.check`.
    fn check(&mut self, name: &str) -> Result<(), OpError>;

    /// Answers `vrf.leave`.
    fn leave(&mut self) -> Result<(), OpError>;
}

impl Vrf {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Join { link, name, table } => node.join(*link, name, *table).and_then(|reply| Reply::of(&reply)),
            Self::Check { name } => node.check(name).and_then(|reply| Reply::of(&reply)),
            Self::Leave => node.leave().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Join { link, name, table } => {
                line.add("link", link)?;
                line.add("name", name)?;
                line.add("table", table)?;
            }
            Self::Check { name } => {
                line.add("name", name)?;
            }
            Self::Leave => {}
        }
        Ok(())
    }
}

impl From<Vrf> for Operation {
    fn from(operation: Vrf) -> Self {
        Self::Vrf(operation)
    }
}

impl OperationTable for Vrf {
    const ROWS: &'static [Row] = &[JOIN, CHECK, LEAVE];

    fn row(&self) -> &'static Row {
        match self {
            Self::Join { .. } => &JOIN,
            Self::Check { .. } => &CHECK,
            Self::Leave => &LEAVE,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        match self {
            Self::Join { link, .. } => vec![(link, Takes::Own)],
            _ => Vec::new(),
        }
    }
}
