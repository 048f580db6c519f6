//! `resolv-conf`: the resolv.conf(5) file that the operator's configuration names as `ipam.resolvConf`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Dns, Handle, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const READ: Row = Row::new("resolv-conf.read", "resolv-conf-read", ActsIn::Nowhere, Lasting::Nothing);

/// The operations of `resolv-conf`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/resolv-conf.wit` describe its fields")]
pub enum ResolvConf {
    /// Reads the file and returns the values that resolv.conf(5) defines, never raw text.
    Read,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `resolv-conf.read`.
    fn read(&mut self) -> Result<Dns, OpError>;
}

impl ResolvConf {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Read => node.read().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, _line: &mut Line<M>) -> Result<(), M::Error> {
        Ok(())
    }
}

impl From<ResolvConf> for Operation {
    fn from(operation: ResolvConf) -> Self {
        Self::ResolvConf(operation)
    }
}

impl OperationTable for ResolvConf {
    const ROWS: &'static [Row] = &[READ];

    fn row(&self) -> &'static Row {
        match self {
            Self::Read => &READ,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        Vec::new()
    }
}
