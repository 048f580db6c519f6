//! `mac-guard`: protection of the node against the container.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, Mac, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const ENSURE: Row = Row::new("mac-guard.ensure", "mac-guard-ensure", ActsIn::Host, Lasting::Attachment);
const CHECK: Row = Row::new("mac-guard.check", "mac-guard-check", ActsIn::Host, Lasting::Nothing);
const REMOVE: Row = Row::new("mac-guard.remove", "mac-guard-remove", ActsIn::Host, Lasting::Removal);

/// The operations of `mac-guard`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/mac-guard.wit` describe its fields")]
pub enum MacGuard {
    /// Host's namespace: makes the rules for this host end and this address, which must belong to the attachment's
    /// living pair.
    Ensure { host: Handle, mac: Mac },
    /// Compares the rules with the expected rules.
    Check { host: Handle, mac: Mac },
    /// Host's namespace: removes the attachment's rules, but never the rules of another attachment with equal
    /// names.
    Remove,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `mac-guard.ensure`.
    fn ensure(&mut self, host: Handle, mac: Mac) -> Result<(), OpError>;

    /// Answers `mac-guard.check`.
    fn check(&mut self, host: Handle, mac: Mac) -> Result<(), OpError>;

    /// Answers `mac-guard.remove`.
    fn remove(&mut self) -> Result<(), OpError>;
}

impl MacGuard {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Ensure { host, mac } => node.ensure(*host, *mac).and_then(|reply| Reply::of(&reply)),
            Self::Check { host, mac } => node.check(*host, *mac).and_then(|reply| Reply::of(&reply)),
            Self::Remove => node.remove().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Ensure { host, mac } => {
                line.add("host", host)?;
                line.add("mac", mac)?;
            }
            Self::Check { host, mac } => {
                line.add("host", host)?;
                line.add("mac", mac)?;
            }
            Self::Remove => {}
        }
        Ok(())
    }
}

impl From<MacGuard> for Operation {
    fn from(operation: MacGuard) -> Self {
        Self::MacGuard(operation)
    }
}

impl OperationTable for MacGuard {
    const ROWS: &'static [Row] = &[ENSURE, CHECK, REMOVE];

    fn row(&self) -> &'static Row {
        match self {
            Self::Ensure { .. } => &ENSURE,
            Self::Check { .. } => &CHECK,
            Self::Remove => &REMOVE,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        match self {
            Self::Ensure { host, .. } => vec![(host, Takes::Port)],
            Self::Check { host, .. } => vec![(host, Takes::SeenEnd)],
            _ => Vec::new(),
        }
    }
}
