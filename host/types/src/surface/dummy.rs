//! `dummy`: the attachment's own link as a dummy: a link that takes every frame and sends it nowhere.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, LinkInfo, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const CREATE: Row = Row::new("dummy.create", "dummy-create", ActsIn::Container, Lasting::Link);

/// The operations of `dummy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/dummy.wit` describe its fields")]
pub enum Dummy {
    /// Container's namespace: makes the link under `CNI_IFNAME`, in state down, with a random, locally administered
    /// address.
    Create,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `dummy.create`.
    fn create(&mut self) -> Result<LinkInfo, OpError>;
}

impl Dummy {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Create => node.create().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, _line: &mut Line<M>) -> Result<(), M::Error> {
        Ok(())
    }
}

impl From<Dummy> for Operation {
    fn from(operation: Dummy) -> Self {
        Self::Dummy(operation)
    }
}

impl OperationTable for Dummy {
    const ROWS: &'static [Row] = &[CREATE];

    fn row(&self) -> &'static Row {
        match self {
            Self::Create => &CREATE,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        Vec::new()
    }
}
