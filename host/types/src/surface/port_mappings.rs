//! `port-mappings`: ports of the node that lead to the attachment's own addresses.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Forward, Handle, NatSources, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

const ENSURE: Row = Row::new("port-mappings.ensure", "port-mappings-ensure", ActsIn::Host, Lasting::Attachment);
const CHECK: Row = Row::new("port-mappings.check", "port-mappings-check", ActsIn::Host, Lasting::Nothing);
const REMOVE: Row = Row::new("port-mappings.remove", "port-mappings-remove", ActsIn::Host, Lasting::Removal);

/// The operations of `port-mappings`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/port-mappings.wit` describe its fields")]
pub enum PortMappings {
    /// Host's namespace: makes rules that lead to these addresses, at most one of each IP version.
    Ensure { addresses: Vec<IpAddr>, forwards: Vec<Forward>, masquerade: NatSources },
    /// Compares the rules with the expected rules.
    Check { addresses: Vec<IpAddr>, forwards: Vec<Forward>, masquerade: NatSources },
    /// Host's namespace: removes the attachment's rules.
    Remove,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `port-mappings.ensure`.
    fn ensure(&mut self, addresses: &[IpAddr], forwards: &[Forward], masquerade: NatSources) -> Result<(), OpError>;

    /// Answers `port-mappings.check`.
    fn check(&mut self, addresses: &[IpAddr], forwards: &[Forward], masquerade: NatSources) -> Result<(), OpError>;

    /// Answers `port-mappings.remove`.
    fn remove(&mut self) -> Result<(), OpError>;
}

impl PortMappings {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Ensure { addresses, forwards, masquerade } => {
                node.ensure(addresses, forwards, *masquerade).and_then(|reply| Reply::of(&reply))
            }
            Self::Check { addresses, forwards, masquerade } => {
                node.check(addresses, forwards, *masquerade).and_then(|reply| Reply::of(&reply))
            }
            Self::Remove => node.remove().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Ensure { addresses, forwards, masquerade } => {
                line.add("addresses", addresses)?;
                line.add("forwards", forwards)?;
                line.add("masquerade", masquerade)?;
            }
            Self::Check { addresses, forwards, masquerade } => {
                line.add("addresses", addresses)?;
                line.add("forwards", forwards)?;
                line.add("masquerade", masquerade)?;
            }
            Self::Remove => {}
        }
        Ok(())
    }
}

impl From<PortMappings> for Operation {
    fn from(operation: PortMappings) -> Self {
        Self::PortMappings(operation)
    }
}

impl OperationTable for PortMappings {
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
