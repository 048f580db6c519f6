//! `namespace-sysctl`: kernel settings of the container's network namespace.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const SET: Row = Row::new("namespace-sysctl.set", "namespace-sysctl-set", ActsIn::Container, Lasting::Namespace);
const CHECK: Row = Row::new("namespace-sysctl.check", "namespace-sysctl-check", ActsIn::Container, Lasting::Nothing);

/// The operations of `namespace-sysctl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/namespace-sysctl.wit` describe its fields")]
pub enum NamespaceSysctl {
    /// Container's namespace: writes the value.
    Set { key: String, value: String },
    /// Compares the value with the kernel's value.
    Check { key: String, value: String },
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `namespace-sysctl.set`.
    fn set(&mut self, key: &str, value: &str) -> Result<(), OpError>;

    /// Answers `namespace-sysctl.check`.
    fn check(&mut self, key: &str, value: &str) -> Result<(), OpError>;
}

impl NamespaceSysctl {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Set { key, value } => node.set(key, value).and_then(|reply| Reply::of(&reply)),
            Self::Check { key, value } => node.check(key, value).and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Set { key, value } => {
                line.add("key", key)?;
                line.add("value", value)?;
            }
            Self::Check { key, value } => {
                line.add("key", key)?;
                line.add("value", value)?;
            }
        }
        Ok(())
    }
}

impl From<NamespaceSysctl> for Operation {
    fn from(operation: NamespaceSysctl) -> Self {
        Self::NamespaceSysctl(operation)
    }
}

impl OperationTable for NamespaceSysctl {
    const ROWS: &'static [Row] = &[SET, CHECK];

    fn row(&self) -> &'static Row {
        match self {
            Self::Set { .. } => &SET,
            Self::Check { .. } => &CHECK,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        Vec::new()
    }
}
