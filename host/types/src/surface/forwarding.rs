//! `forwarding`: iP forwarding of the node.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const ENABLE: Row = Row::new("forwarding.enable", "forwarding-enable", ActsIn::Host, Lasting::Node);

/// The operations of `forwarding`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/forwarding.wit` describe its fields")]
pub enum Forwarding {
    /// Host's namespace: turns forwarding on (`net.ipv4.ip_forward`, `net.ipv6.conf.all.forwarding`) for the
    /// families of the attachment's addresses, if it is off.
    Enable,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `forwarding.enable`.
    fn enable(&mut self) -> Result<(), OpError>;
}

impl Forwarding {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Enable => node.enable().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, _line: &mut Line<M>) -> Result<(), M::Error> {
        Ok(())
    }
}

impl From<Forwarding> for Operation {
    fn from(operation: Forwarding) -> Self {
        Self::Forwarding(operation)
    }
}

impl OperationTable for Forwarding {
    const ROWS: &'static [Row] = &[ENABLE];

    fn row(&self) -> &'static Row {
        match self {
            Self::Enable => &ENABLE,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        Vec::new()
    }
}
