//! `leases`: the address store of host-local, limited to one network: the directory `<ipam.dataDir>/<network>`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes, WithoutGrant};
use crate::{Handle, LeaseGrant, LeaseRange, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

const RESERVE: Row = Row::new("leases.reserve", "leases-reserve", ActsIn::Nowhere, Lasting::Attachment);
const HELD: Row = Row::new("leases.held", "leases-held", ActsIn::Nowhere, Lasting::Nothing);
const RELEASE: Row = Row::new("leases.release", "leases-release", ActsIn::Nowhere, Lasting::Release)
    .without_grant(WithoutGrant::IfAddressPlugin);
const RETAIN: Row = Row::new("leases.retain", "leases-retain", ActsIn::Nowhere, Lasting::Collection);
const AVAILABLE: Row = Row::new("leases.available", "leases-available", ActsIn::Nowhere, Lasting::Nothing);

/// The operations of `leases`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/leases.wit` describe its fields")]
pub enum Leases {
    /// Reserves one address from each set of ranges: the requested address, or the next free address, round robin.
    Reserve { sets: Vec<Vec<LeaseRange>>, requested: Vec<IpAddr> },
    /// Returns the attachment's addresses, without gateway and with the full prefix length.
    Held,
    /// Releases the attachment's addresses.
    Release,
    /// Frees every lease of the network with an owner outside the runtime's list of valid attachments
    /// (`cni.dev/valid-attachments`).
    Retain,
    /// For STATUS: true if the network can give addresses.
    Available { sets: Vec<Vec<LeaseRange>> },
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `leases.reserve`.
    fn reserve(&mut self, sets: &[Vec<LeaseRange>], requested: &[IpAddr]) -> Result<Vec<LeaseGrant>, OpError>;

    /// Answers `leases.held`.
    fn held(&mut self) -> Result<Vec<LeaseGrant>, OpError>;

    /// Answers `leases.release`.
    fn release(&mut self) -> Result<(), OpError>;

    /// Answers `leases.retain`.
    fn retain(&mut self) -> Result<u32, OpError>;

    /// Answers `leases.available`.
    fn available(&mut self, sets: &[Vec<LeaseRange>]) -> Result<bool, OpError>;
}

impl Leases {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Reserve { sets, requested } => node.reserve(sets, requested).and_then(|reply| Reply::of(&reply)),
            Self::Held => node.held().and_then(|reply| Reply::of(&reply)),
            Self::Release => node.release().and_then(|reply| Reply::of(&reply)),
            Self::Retain => node.retain().and_then(|reply| Reply::of(&reply)),
            Self::Available { sets } => node.available(sets).and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Reserve { sets, requested } => {
                line.add("sets", sets)?;
                line.add("requested", requested)?;
            }
            Self::Held => {}
            Self::Release => {}
            Self::Retain => {}
            Self::Available { sets } => {
                line.add("sets", sets)?;
            }
        }
        Ok(())
    }
}

impl From<Leases> for Operation {
    fn from(operation: Leases) -> Self {
        Self::Leases(operation)
    }
}

impl OperationTable for Leases {
    const ROWS: &'static [Row] = &[RESERVE, HELD, RELEASE, RETAIN, AVAILABLE];

    fn row(&self) -> &'static Row {
        match self {
            Self::Reserve { .. } => &RESERVE,
            Self::Held => &HELD,
            Self::Release => &RELEASE,
            Self::Retain => &RETAIN,
            Self::Available { .. } => &AVAILABLE,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        Vec::new()
    }
}
