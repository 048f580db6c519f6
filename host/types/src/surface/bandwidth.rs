//! `bandwidth`: the rate of the attachment's own traffic, limited at its host end.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, LinkInfo, OpError, RateLimit, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const LIMIT: Row = Row::new("bandwidth.limit", "bandwidth-limit", ActsIn::Both, Lasting::Attachment);
const CHECK: Row = Row::new("bandwidth.check", "bandwidth-check", ActsIn::Both, Lasting::Nothing);
const REMOVE: Row = Row::new("bandwidth.remove", "bandwidth-remove", ActsIn::Host, Lasting::Removal);

/// The operations of `bandwidth`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/bandwidth.wit` describe its fields")]
pub enum Bandwidth {
    /// Host's namespace: limits the traffic to the container (`ingress`), the traffic from the container
    /// (`egress`), or both.
    Limit { ingress: Option<RateLimit>, egress: Option<RateLimit> },
    /// Compares the limits and the redirection with the expected state.
    Check { ingress: Option<RateLimit>, egress: Option<RateLimit> },
    /// Host's namespace: removes the limits and the ifb.
    Remove,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `bandwidth.limit`.
    fn limit(&mut self, ingress: Option<RateLimit>, egress: Option<RateLimit>) -> Result<Option<LinkInfo>, OpError>;

    /// Answers `bandwidth.check`.
    fn check(&mut self, ingress: Option<RateLimit>, egress: Option<RateLimit>) -> Result<(), OpError>;

    /// Answers `bandwidth.remove`.
    fn remove(&mut self) -> Result<(), OpError>;
}

impl Bandwidth {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Limit { ingress, egress } => node.limit(*ingress, *egress).and_then(|reply| Reply::of(&reply)),
            Self::Check { ingress, egress } => node.check(*ingress, *egress).and_then(|reply| Reply::of(&reply)),
            Self::Remove => node.remove().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Limit { ingress, egress } => {
                line.add("ingress", ingress)?;
                line.add("egress", egress)?;
            }
            Self::Check { ingress, egress } => {
                line.add("ingress", ingress)?;
                line.add("egress", egress)?;
            }
            Self::Remove => {}
        }
        Ok(())
    }
}

impl From<Bandwidth> for Operation {
    fn from(operation: Bandwidth) -> Self {
        Self::Bandwidth(operation)
    }
}

impl OperationTable for Bandwidth {
    const ROWS: &'static [Row] = &[LIMIT, CHECK, REMOVE];

    fn row(&self) -> &'static Row {
        match self {
            Self::Limit { .. } => &LIMIT,
            Self::Check { .. } => &CHECK,
            Self::Remove => &REMOVE,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        Vec::new()
    }
}
