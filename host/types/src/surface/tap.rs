//! `tap`: the attachment's own link as a persistent tap (Linux `tuntap`).
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, LinkInfo, OpError, Reply, TapSettings};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const CREATE: Row = Row::new("tap.create", "tap-create", ActsIn::Container, Lasting::Link);
const JOIN: Row = Row::new("tap.join", "tap-join", ActsIn::Container, Lasting::Part);

/// The operations of `tap`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/tap.wit` describe its fields")]
pub enum Tap {
    /// Container's namespace: makes the link, which is named `CNI_IFNAME` and is down.
    Create { settings: TapSettings },
    /// Container's namespace: makes the link from `create` a port of the container's bridge of this name.
    Join { link: Handle, bridge: String },
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `tap.create`.
    fn create(&mut self, settings: &TapSettings) -> Result<LinkInfo, OpError>;

    /// Answers `tap.join`.
    fn join(&mut self, link: Handle, bridge: &str) -> Result<(), OpError>;
}

impl Tap {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Create { settings } => node.create(settings).and_then(|reply| Reply::of(&reply)),
            Self::Join { link, bridge } => node.join(*link, bridge).and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Create { settings } => {
                line.add("settings", settings)?;
            }
            Self::Join { link, bridge } => {
                line.add("link", link)?;
                line.add("bridge", bridge)?;
            }
        }
        Ok(())
    }
}

impl From<Tap> for Operation {
    fn from(operation: Tap) -> Self {
        Self::Tap(operation)
    }
}

impl OperationTable for Tap {
    const ROWS: &'static [Row] = &[CREATE, JOIN];

    fn row(&self) -> &'static Row {
        match self {
            Self::Create { .. } => &CREATE,
            Self::Join { .. } => &JOIN,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        match self {
            Self::Join { link, .. } => vec![(link, Takes::Own)],
            _ => Vec::new(),
        }
    }
}
