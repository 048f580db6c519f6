//! `ipam`: delegation to the operator's IPAM plugin.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes, WithoutGrant};
use crate::{Handle, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const ADD: Row = Row::new("ipam.add", "ipam-add", ActsIn::Nowhere, Lasting::Attachment);
const DEL: Row =
    Row::new("ipam.del", "ipam-del", ActsIn::Nowhere, Lasting::Release).without_grant(WithoutGrant::Allowed);
const CHECK: Row = Row::new("ipam.check", "ipam-check", ActsIn::Nowhere, Lasting::Nothing);
const STATUS: Row = Row::new("ipam.status", "ipam-status", ActsIn::Nowhere, Lasting::Nothing);
const GC: Row = Row::new("ipam.gc", "ipam-gc", ActsIn::Nowhere, Lasting::Collection);

/// The operations of `ipam`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/ipam.wit` describe its fields")]
pub enum Ipam {
    /// Runs ADD; the addresses become the attachment's own.
    Add,
    /// Runs DEL.
    Del,
    /// Runs CHECK.
    Check,
    /// Runs STATUS.
    Status,
    /// Runs GC.
    Gc,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `ipam.add`.
    fn add(&mut self) -> Result<String, OpError>;

    /// Answers `ipam.del`.
    fn del(&mut self) -> Result<(), OpError>;

    /// Answers `ipam.check`.
    fn check(&mut self) -> Result<(), OpError>;

    /// Answers `ipam.status`.
    fn status(&mut self) -> Result<(), OpError>;

    /// Answers `ipam.gc`.
    fn gc(&mut self) -> Result<(), OpError>;
}

impl Ipam {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Add => node.add().and_then(|reply| Reply::of(&reply)),
            Self::Del => node.del().and_then(|reply| Reply::of(&reply)),
            Self::Check => node.check().and_then(|reply| Reply::of(&reply)),
            Self::Status => node.status().and_then(|reply| Reply::of(&reply)),
            Self::Gc => node.gc().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, _line: &mut Line<M>) -> Result<(), M::Error> {
        Ok(())
    }
}

impl From<Ipam> for Operation {
    fn from(operation: Ipam) -> Self {
        Self::Ipam(operation)
    }
}

impl OperationTable for Ipam {
    const ROWS: &'static [Row] = &[ADD, DEL, CHECK, STATUS, GC];

    fn row(&self) -> &'static Row {
        match self {
            Self::Add => &ADD,
            Self::Del => &DEL,
            Self::Check => &CHECK,
            Self::Status => &STATUS,
            Self::Gc => &GC,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        Vec::new()
    }
}
