//! `source-routes`: source routing in the container's namespace: packets from an own address of the attachment leave by
//! the attachment's own link.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, OpError, Reply, RouteSource};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const APPLY: Row = Row::new("source-routes.apply", "source-routes-apply", ActsIn::Container, Lasting::Attachment);
const CHECK: Row = Row::new("source-routes.check", "source-routes-check", ActsIn::Container, Lasting::Nothing);
const REMOVE: Row = Row::new("source-routes.remove", "source-routes-remove", ActsIn::Container, Lasting::Removal);

/// The operations of `source-routes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/source-routes.wit` describe its fields")]
pub enum SourceRoutes {
    /// Container's namespace: makes one rule for each source, `from ADDRESS lookup TABLE`.
    Apply { link: Handle, sources: Vec<RouteSource>, table: Option<u32>, hints: bool },
    /// Compares rules and routes with this plugin's section of the record.
    Check,
    /// Container's namespace: removes the rules and tables by the record, and puts the link's routes back into the
    /// main table.
    Remove,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `source-routes.apply`.
    fn apply(&mut self, link: Handle, sources: &[RouteSource], table: Option<u32>, hints: bool) -> Result<(), OpError>;

    /// Answers `source-routes.check`.
    fn check(&mut self) -> Result<(), OpError>;

    /// Answers `source-routes.remove`.
    fn remove(&mut self) -> Result<(), OpError>;
}

impl SourceRoutes {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Apply { link, sources, table, hints } => {
                node.apply(*link, sources, *table, *hints).and_then(|reply| Reply::of(&reply))
            }
            Self::Check => node.check().and_then(|reply| Reply::of(&reply)),
            Self::Remove => node.remove().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Apply { link, sources, table, hints } => {
                line.add("link", link)?;
                line.add("sources", sources)?;
                line.add("table", table)?;
                line.add("hints", hints)?;
            }
            Self::Check => {}
            Self::Remove => {}
        }
        Ok(())
    }
}

impl From<SourceRoutes> for Operation {
    fn from(operation: SourceRoutes) -> Self {
        Self::SourceRoutes(operation)
    }
}

impl OperationTable for SourceRoutes {
    const ROWS: &'static [Row] = &[APPLY, CHECK, REMOVE];

    fn row(&self) -> &'static Row {
        match self {
            Self::Apply { .. } => &APPLY,
            Self::Check => &CHECK,
            Self::Remove => &REMOVE,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        match self {
            Self::Apply { link, .. } => vec![(link, Takes::Own)],
            _ => Vec::new(),
        }
    }
}
