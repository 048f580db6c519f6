//! `point-to-point`: the host end of a routed pair.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const ENSURE: Row = Row::new("point-to-point.ensure", "point-to-point-ensure", ActsIn::Host, Lasting::Part);

/// The operations of `point-to-point`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/point-to-point.wit` describe its fields")]
pub enum PointToPoint {
    /// Host's namespace: for each of the attachment's addresses, puts the gateway as a /32 or /128 on the host end.
    Ensure { host: Handle },
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `point-to-point.ensure`.
    fn ensure(&mut self, host: Handle) -> Result<(), OpError>;
}

impl PointToPoint {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Ensure { host } => node.ensure(*host).and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Ensure { host } => {
                line.add("host", host)?;
            }
        }
        Ok(())
    }
}

impl From<PointToPoint> for Operation {
    fn from(operation: PointToPoint) -> Self {
        Self::PointToPoint(operation)
    }
}

impl OperationTable for PointToPoint {
    const ROWS: &'static [Row] = &[ENSURE];

    fn row(&self) -> &'static Row {
        match self {
            Self::Ensure { .. } => &ENSURE,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        match self {
            Self::Ensure { host, .. } => vec![(host, Takes::HostEnd)],
        }
    }
}
