//! `routes`: routes through the attachment's own link, in the container's namespace.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, OpError, Reply, Route};
use ipnet::IpNet;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const ADD: Row = Row::new("routes.add", "routes-add", ActsIn::Container, Lasting::Part);
const REMOVE_CONNECTED: Row =
    Row::new("routes.remove-connected", "routes-remove-connected", ActsIn::Container, Lasting::Part);
const LIST: Row = Row::new("routes.list", "routes-list", ActsIn::Container, Lasting::Nothing);
const HAS: Row = Row::new("routes.has", "routes-has", ActsIn::Container, Lasting::Nothing);

/// The operations of `routes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/routes.wit` describe its fields")]
pub enum Routes {
    /// Container's namespace: adds the routes in order, and stops at the first refusal.
    Add { link: Handle, routes: Vec<Route> },
    /// Container's namespace: removes the routes that the kernel made for these prefixes when the addresses were
    /// added.
    RemoveConnected { link: Handle, networks: Vec<IpNet> },
    /// Reads the main table's routes through the link.
    List { link: Handle },
    /// Tells for each given route whether `list` would read it.
    Has { link: Handle, routes: Vec<Route> },
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `routes.add`.
    fn add(&mut self, link: Handle, routes: &[Route]) -> Result<(), OpError>;

    /// Answers `routes.remove-connected`.
    fn remove_connected(&mut self, link: Handle, networks: &[IpNet]) -> Result<(), OpError>;

    /// Answers `routes.list`.
    fn list(&mut self, link: Handle) -> Result<Vec<Route>, OpError>;

    /// Answers `routes.has`.
    fn has(&mut self, link: Handle, routes: &[Route]) -> Result<Vec<bool>, OpError>;
}

impl Routes {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Add { link, routes } => node.add(*link, routes).and_then(|reply| Reply::of(&reply)),
            Self::RemoveConnected { link, networks } => {
                node.remove_connected(*link, networks).and_then(|reply| Reply::of(&reply))
            }
            Self::List { link } => node.list(*link).and_then(|reply| Reply::of(&reply)),
            Self::Has { link, routes } => node.has(*link, routes).and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Add { link, routes } => {
                line.add("link", link)?;
                line.add("routes", routes)?;
            }
            Self::RemoveConnected { link, networks } => {
                line.add("link", link)?;
                line.add("networks", networks)?;
            }
            Self::List { link } => {
                line.add("link", link)?;
            }
            Self::Has { link, routes } => {
                line.add("link", link)?;
                line.add("routes", routes)?;
            }
        }
        Ok(())
    }
}

impl From<Routes> for Operation {
    fn from(operation: Routes) -> Self {
        Self::Routes(operation)
    }
}

impl OperationTable for Routes {
    const ROWS: &'static [Row] = &[ADD, REMOVE_CONNECTED, LIST, HAS];

    fn row(&self) -> &'static Row {
        match self {
            Self::Add { .. } => &ADD,
            Self::RemoveConnected { .. } => &REMOVE_CONNECTED,
            Self::List { .. } => &LIST,
            Self::Has { .. } => &HAS,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        match self {
            Self::Add { link, .. } => vec![(link, Takes::Own)],
            Self::RemoveConnected { link, .. } => vec![(link, Takes::Own)],
            Self::List { link, .. } => vec![(link, Takes::Own)],
            Self::Has { link, .. } => vec![(link, Takes::Own)],
        }
    }
}
