//! `addresses`: addresses on the attachment's own link, in the container's namespace.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Address, Handle, OpError, Reply};
use ipnet::IpNet;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const ADD: Row = Row::new("addresses.add", "addresses-add", ActsIn::Container, Lasting::Part);
const LIST: Row = Row::new("addresses.list", "addresses-list", ActsIn::Container, Lasting::Nothing);
const HAS: Row = Row::new("addresses.has", "addresses-has", ActsIn::Container, Lasting::Nothing);
const SETTLE: Row = Row::new("addresses.settle", "addresses-settle", ActsIn::Container, Lasting::Nothing);

/// The operations of `addresses`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/addresses.wit` describe its fields")]
pub enum Addresses {
    /// Container's namespace: adds the addresses, with a computed broadcast address for IPv4 networks wider than
    /// /31.
    Add { link: Handle, addresses: Vec<IpNet> },
    /// Reads the link's addresses.
    List { link: Handle },
    /// Tells for each given address, with its prefix length, whether the link has it.
    Has { link: Handle, addresses: Vec<IpNet> },
    /// Waits until no IPv6 address of the link is tentative: at most 5 seconds, or to the deadline of the run.
    Settle { link: Handle },
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `addresses.add`.
    fn add(&mut self, link: Handle, addresses: &[IpNet]) -> Result<(), OpError>;

    /// Answers `addresses.list`.
    fn list(&mut self, link: Handle) -> Result<Vec<Address>, OpError>;

    /// Answers `addresses.has`.
    fn has(&mut self, link: Handle, addresses: &[IpNet]) -> Result<Vec<bool>, OpError>;

    /// Answers `addresses.settle`.
    fn settle(&mut self, link: Handle) -> Result<(), OpError>;
}

impl Addresses {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Add { link, addresses } => node.add(*link, addresses).and_then(|reply| Reply::of(&reply)),
            Self::List { link } => node.list(*link).and_then(|reply| Reply::of(&reply)),
            Self::Has { link, addresses } => node.has(*link, addresses).and_then(|reply| Reply::of(&reply)),
            Self::Settle { link } => node.settle(*link).and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Add { link, addresses } => {
                line.add("link", link)?;
                line.add("addresses", addresses)?;
            }
            Self::List { link } => {
                line.add("link", link)?;
            }
            Self::Has { link, addresses } => {
                line.add("link", link)?;
                line.add("addresses", addresses)?;
            }
            Self::Settle { link } => {
                line.add("link", link)?;
            }
        }
        Ok(())
    }
}

impl From<Addresses> for Operation {
    fn from(operation: Addresses) -> Self {
        Self::Addresses(operation)
    }
}

impl OperationTable for Addresses {
    const ROWS: &'static [Row] = &[ADD, LIST, HAS, SETTLE];

    fn row(&self) -> &'static Row {
        match self {
            Self::Add { .. } => &ADD,
            Self::List { .. } => &LIST,
            Self::Has { .. } => &HAS,
            Self::Settle { .. } => &SETTLE,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        match self {
            Self::Add { link, .. } => vec![(link, Takes::Own)],
            Self::List { link, .. } => vec![(link, Takes::Own)],
            Self::Has { link, .. } => vec![(link, Takes::Own)],
            Self::Settle { link, .. } => vec![(link, Takes::Own)],
        }
    }
}
