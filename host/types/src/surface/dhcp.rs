//! `dhcp`: the lease that the node's DHCP service keeps for this attachment.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes, WithoutGrant};
use crate::{DhcpLease, Handle, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const ACQUIRE: Row = Row::new("dhcp.acquire", "dhcp-acquire", ActsIn::Both, Lasting::Attachment);
const CHECK: Row = Row::new("dhcp.check", "dhcp-check", ActsIn::Nowhere, Lasting::Nothing);
const RELEASE: Row = Row::new("dhcp.release", "dhcp-release", ActsIn::Nowhere, Lasting::Release)
    .without_grant(WithoutGrant::IfAddressPlugin);
const STATUS: Row = Row::new("dhcp.status", "dhcp-status", ActsIn::Nowhere, Lasting::Nothing);

/// The operations of `dhcp`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/dhcp.wit` describe its fields")]
pub enum Dhcp {
    /// Asks the service to get a lease for the attachment's link, and to keep it alive.
    Acquire,
    /// Returns the lease in its present state at the service.
    Check,
    /// Asks the service to give the lease back.
    Release,
    /// Tests whether the service answers.
    Status,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `dhcp.acquire`.
    fn acquire(&mut self) -> Result<DhcpLease, OpError>;

    /// Answers `dhcp.check`.
    fn check(&mut self) -> Result<DhcpLease, OpError>;

    /// Answers `dhcp.release`.
    fn release(&mut self) -> Result<(), OpError>;

    /// Answers `dhcp.status`.
    fn status(&mut self) -> Result<(), OpError>;
}

impl Dhcp {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Acquire => node.acquire().and_then(|reply| Reply::of(&reply)),
            Self::Check => node.check().and_then(|reply| Reply::of(&reply)),
            Self::Release => node.release().and_then(|reply| Reply::of(&reply)),
            Self::Status => node.status().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, _line: &mut Line<M>) -> Result<(), M::Error> {
        Ok(())
    }
}

impl From<Dhcp> for Operation {
    fn from(operation: Dhcp) -> Self {
        Self::Dhcp(operation)
    }
}

impl OperationTable for Dhcp {
    const ROWS: &'static [Row] = &[ACQUIRE, CHECK, RELEASE, STATUS];

    fn row(&self) -> &'static Row {
        match self {
            Self::Acquire => &ACQUIRE,
            Self::Check => &CHECK,
            Self::Release => &RELEASE,
            Self::Status => &STATUS,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        Vec::new()
    }
}
