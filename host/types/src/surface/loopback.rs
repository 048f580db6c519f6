//! `loopback`: the link `lo` of the container's namespace, and nothing else.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes, WithoutGrant};
use crate::{Handle, LoopbackState, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const UP: Row = Row::new("loopback.up", "loopback-up", ActsIn::Container, Lasting::Namespace);
const DOWN: Row = Row::new("loopback.down", "loopback-down", ActsIn::Container, Lasting::Removal)
    .without_grant(WithoutGrant::IfNamed);
const ADDRESSES: Row = Row::new("loopback.addresses", "loopback-addresses", ActsIn::Container, Lasting::Nothing);

/// The operations of `loopback`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/loopback.wit` describe its fields")]
pub enum Loopback {
    /// Container's namespace: sets `lo` up.
    Up,
    /// Container's namespace: sets `lo` down.
    Down,
    /// Reads the state and the addresses of `lo`: at most 128 of each family.
    Addresses,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `loopback.up`.
    fn up(&mut self) -> Result<(), OpError>;

    /// Answers `loopback.down`.
    fn down(&mut self) -> Result<(), OpError>;

    /// Answers `loopback.addresses`.
    fn addresses(&mut self) -> Result<LoopbackState, OpError>;
}

impl Loopback {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Up => node.up().and_then(|reply| Reply::of(&reply)),
            Self::Down => node.down().and_then(|reply| Reply::of(&reply)),
            Self::Addresses => node.addresses().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, _line: &mut Line<M>) -> Result<(), M::Error> {
        Ok(())
    }
}

impl From<Loopback> for Operation {
    fn from(operation: Loopback) -> Self {
        Self::Loopback(operation)
    }
}

impl OperationTable for Loopback {
    const ROWS: &'static [Row] = &[UP, DOWN, ADDRESSES];

    fn row(&self) -> &'static Row {
        match self {
            Self::Up => &UP,
            Self::Down => &DOWN,
            Self::Addresses => &ADDRESSES,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        Vec::new()
    }
}
