//! `link-sysctl`: kernel settings of the attachment's own link, in the container's namespace.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const SET: Row = Row::new("link-sysctl.set", "sysctl-set", ActsIn::Container, Lasting::Part);

/// The operations of `link-sysctl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/link-sysctl.wit` describe its fields")]
pub enum LinkSysctl {
    /// `net.ipv6.conf.<link>.accept_dad`: duplicate address detection.
    Set { link: Handle, key: crate::LinkSysctl, value: bool },
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `link-sysctl.set`.
    fn set(&mut self, link: Handle, key: crate::LinkSysctl, value: bool) -> Result<(), OpError>;
}

impl LinkSysctl {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Set { link, key, value } => node.set(*link, *key, *value).and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Set { link, key, value } => {
                line.add("link", link)?;
                line.add("key", key)?;
                line.add("value", value)?;
            }
        }
        Ok(())
    }
}

impl From<LinkSysctl> for Operation {
    fn from(operation: LinkSysctl) -> Self {
        Self::LinkSysctl(operation)
    }
}

impl OperationTable for LinkSysctl {
    const ROWS: &'static [Row] = &[SET];

    fn row(&self) -> &'static Row {
        match self {
            Self::Set { .. } => &SET,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        match self {
            Self::Set { link, .. } => vec![(link, Takes::Own)],
        }
    }
}
