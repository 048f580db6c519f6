//! `attachments`: the objects that attachments have left on the node, for GC.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const COLLECT: Row = Row::new("attachments.collect", "attachments-collect", ActsIn::Host, Lasting::Collection);

/// The operations of `attachments`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/attachments.wit` describe its fields")]
pub enum Attachments {
    /// Both namespaces: removes the objects of every attachment of this network that is gone.
    Collect,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `attachments.collect`.
    fn collect(&mut self) -> Result<u32, OpError>;
}

impl Attachments {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Collect => node.collect().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, _line: &mut Line<M>) -> Result<(), M::Error> {
        Ok(())
    }
}

impl From<Attachments> for Operation {
    fn from(operation: Attachments) -> Self {
        Self::Attachments(operation)
    }
}

impl OperationTable for Attachments {
    const ROWS: &'static [Row] = &[COLLECT];

    fn row(&self) -> &'static Row {
        match self {
            Self::Collect => &COLLECT,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        Vec::new()
    }
}
