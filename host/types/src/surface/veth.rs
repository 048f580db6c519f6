//! `veth`: pairs of virtual Ethernet devices (veth(4)) between the container and the host.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, LinkInfo, Mac, OpError, Reply, VethPair};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const WAIT_RUNNING: Row = Row::new("veth.wait-running", "veth-wait-running", ActsIn::Host, Lasting::Nothing);
const CREATE: Row = Row::new("veth.create", "veth-create", ActsIn::Both, Lasting::Link);
const FIND: Row = Row::new("veth.find", "veth-find", ActsIn::Both, Lasting::Nothing);

/// The operations of `veth`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/veth.wit` describe its fields")]
pub enum Veth {
    /// Waits until the kernel reports the end as operational: about 2.5 seconds, or to the deadline of the run.
    WaitRunning { host: Handle },
    /// Both namespaces: makes both ends in one kernel message, each directly in its final namespace.
    Create { mtu: Option<u32>, mac: Option<Mac> },
    /// Finds the pair that an earlier run made for this attachment.
    Find,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `veth.wait-running`.
    fn wait_running(&mut self, host: Handle) -> Result<LinkInfo, OpError>;

    /// Answers `veth.create`.
    fn create(&mut self, mtu: Option<u32>, mac: Option<Mac>) -> Result<VethPair, OpError>;

    /// Answers `veth.find`.
    fn find(&mut self) -> Result<Option<VethPair>, OpError>;
}

impl Veth {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::WaitRunning { host } => node.wait_running(*host).and_then(|reply| Reply::of(&reply)),
            Self::Create { mtu, mac } => node.create(*mtu, *mac).and_then(|reply| Reply::of(&reply)),
            Self::Find => node.find().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::WaitRunning { host } => {
                line.add("host", host)?;
            }
            Self::Create { mtu, mac } => {
                line.add("mtu", mtu)?;
                line.add("mac", mac)?;
            }
            Self::Find => {}
        }
        Ok(())
    }
}

impl From<Veth> for Operation {
    fn from(operation: Veth) -> Self {
        Self::Veth(operation)
    }
}

impl OperationTable for Veth {
    const ROWS: &'static [Row] = &[WAIT_RUNNING, CREATE, FIND];

    fn row(&self) -> &'static Row {
        match self {
            Self::WaitRunning { .. } => &WAIT_RUNNING,
            Self::Create { .. } => &CREATE,
            Self::Find => &FIND,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        match self {
            Self::WaitRunning { host, .. } => vec![(host, Takes::Port)],
            _ => Vec::new(),
        }
    }
}
