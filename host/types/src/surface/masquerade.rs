//! `masquerade`: source NAT for the attachment's own addresses, in the host's namespace.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Backend, Handle, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const ENSURE: Row = Row::new("masquerade.ensure", "masquerade-ensure", ActsIn::Host, Lasting::Attachment);
const CHECK: Row = Row::new("masquerade.check", "masquerade-check", ActsIn::Host, Lasting::Nothing);
const REMOVE: Row = Row::new("masquerade.remove", "masquerade-remove", ActsIn::Host, Lasting::Removal);

/// The operations of `masquerade`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/masquerade.wit` describe its fields")]
pub enum Masquerade {
    /// Host's namespace: makes the rules, if they are missing.
    Ensure { backend: Option<Backend> },
    /// Compares the rules with the expected rules.
    Check { backend: Option<Backend> },
    /// Host's namespace: removes the attachment's rules of both backends.
    Remove,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `masquerade.ensure`.
    fn ensure(&mut self, backend: Option<Backend>) -> Result<(), OpError>;

    /// Answers `masquerade.check`.
    fn check(&mut self, backend: Option<Backend>) -> Result<(), OpError>;

    /// Answers `masquerade.remove`.
    fn remove(&mut self) -> Result<(), OpError>;
}

impl Masquerade {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Ensure { backend } => node.ensure(*backend).and_then(|reply| Reply::of(&reply)),
            Self::Check { backend } => node.check(*backend).and_then(|reply| Reply::of(&reply)),
            Self::Remove => node.remove().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Ensure { backend } => {
                line.add("backend", backend)?;
            }
            Self::Check { backend } => {
                line.add("backend", backend)?;
            }
            Self::Remove => {}
        }
        Ok(())
    }
}

impl From<Masquerade> for Operation {
    fn from(operation: Masquerade) -> Self {
        Self::Masquerade(operation)
    }
}

impl OperationTable for Masquerade {
    const ROWS: &'static [Row] = &[ENSURE, CHECK, REMOVE];

    fn row(&self) -> &'static Row {
        match self {
            Self::Ensure { .. } => &ENSURE,
            Self::Check { .. } => &CHECK,
            Self::Remove => &REMOVE,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        Vec::new()
    }
}
