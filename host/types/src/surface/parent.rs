//! `parent`: links that other links are stacked on, and that the operator's configuration names: the master of a
//! macvlan, a VLAN or an ipvlan.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, LinkInfo, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const FIND: Row = Row::new("parent.find", "parent-find", ActsIn::Both, Lasting::Nothing);

/// The operations of `parent`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/parent.wit` describe its fields")]
pub enum Parent {
    /// Host's namespace, or container's namespace with `in-container`: looks up a granted link.
    Find { name: String, in_container: bool },
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `parent.find`.
    fn find(&mut self, name: &str, in_container: bool) -> Result<LinkInfo, OpError>;
}

impl Parent {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Find { name, in_container } => node.find(name, *in_container).and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Find { name, in_container } => {
                line.add("name", name)?;
                line.add("in_container", in_container)?;
            }
        }
        Ok(())
    }
}

impl From<Parent> for Operation {
    fn from(operation: Parent) -> Self {
        Self::Parent(operation)
    }
}

impl OperationTable for Parent {
    const ROWS: &'static [Row] = &[FIND];

    fn row(&self) -> &'static Row {
        match self {
            Self::Find { .. } => &FIND,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        Vec::new()
    }
}
