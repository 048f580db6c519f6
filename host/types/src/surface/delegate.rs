//! `delegate`: delegation to the main plugin of a network of flannel.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes, WithoutGrant};
use crate::{Handle, OpError, Reply, SubnetFile};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const SUBNET_FILE: Row = Row::new("delegate.subnet-file", "delegate-subnet-file", ActsIn::Nowhere, Lasting::Nothing);
const ADD: Row = Row::new("delegate.add", "delegate-add", ActsIn::Both, Lasting::Link);
const DEL: Row =
    Row::new("delegate.del", "delegate-del", ActsIn::Both, Lasting::Release).without_grant(WithoutGrant::Allowed);
const CHECK: Row = Row::new("delegate.check", "delegate-check", ActsIn::Both, Lasting::Nothing);
const STATUS: Row = Row::new("delegate.status", "delegate-status", ActsIn::Nowhere, Lasting::Nothing);
const GC: Row = Row::new("delegate.gc", "delegate-gc", ActsIn::Host, Lasting::Collection);

/// The operations of `delegate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/delegate.wit` describe its fields")]
pub enum Delegate {
    /// Returns the contents of the subnet file that the configuration names as `subnetFile` (default:
    /// `/run/flannel/subnet.env`).
    SubnetFile,
    /// Runs the delegate's ADD.
    Add { config: String },
    /// Runs the delegate's DEL with the configuration of its ADD.
    Del,
    /// Runs the delegate's CHECK, with the configuration of its ADD and the `prevResult` of this call.
    Check,
    /// Runs the delegate's STATUS.
    Status,
    /// Runs the delegate's GC.
    Gc,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `delegate.subnet-file`.
    fn subnet_file(&mut self) -> Result<SubnetFile, OpError>;

    /// Answers `delegate.add`.
    fn add(&mut self, config: &str) -> Result<String, OpError>;

    /// Answers `delegate.del`.
    fn del(&mut self) -> Result<(), OpError>;

    /// Answers `delegate.check`.
    fn check(&mut self) -> Result<(), OpError>;

    /// Answers `delegate.status`.
    fn status(&mut self) -> Result<(), OpError>;

    /// Answers `delegate.gc`.
    fn gc(&mut self) -> Result<(), OpError>;
}

impl Delegate {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::SubnetFile => node.subnet_file().and_then(|reply| Reply::of(&reply)),
            Self::Add { config } => node.add(config).and_then(|reply| Reply::of(&reply)),
            Self::Del => node.del().and_then(|reply| Reply::of(&reply)),
            Self::Check => node.check().and_then(|reply| Reply::of(&reply)),
            Self::Status => node.status().and_then(|reply| Reply::of(&reply)),
            Self::Gc => node.gc().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::SubnetFile => {}
            Self::Add { config } => {
                line.add("config", config)?;
            }
            Self::Del => {}
            Self::Check => {}
            Self::Status => {}
            Self::Gc => {}
        }
        Ok(())
    }
}

impl From<Delegate> for Operation {
    fn from(operation: Delegate) -> Self {
        Self::Delegate(operation)
    }
}

impl OperationTable for Delegate {
    const ROWS: &'static [Row] = &[SUBNET_FILE, ADD, DEL, CHECK, STATUS, GC];

    fn row(&self) -> &'static Row {
        match self {
            Self::SubnetFile => &SUBNET_FILE,
            Self::Add { .. } => &ADD,
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
