//! `device`: links of the node that an operator has reserved for containers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes, WithoutGrant};
use crate::{DeviceKey, Handle, LinkInfo, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const FIND: Row = Row::new("device.find", "device-find", ActsIn::Host, Lasting::Nothing);
const TAKE: Row = Row::new("device.take", "device-take", ActsIn::Both, Lasting::Link);
const GIVE_BACK: Row = Row::new("device.give-back", "device-give-back", ActsIn::Both, Lasting::Removal)
    .without_grant(WithoutGrant::IfLinkMaker);

/// The operations of `device`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/device.wit` describe its fields")]
pub enum Device {
    /// Host's namespace: looks up a granted device.
    Find { by: DeviceKey, value: String },
    /// Both namespaces: moves a granted device from the host into the container, names it `CNI_IFNAME`, and sets it
    /// up.
    Take { by: DeviceKey, value: String },
    /// Both namespaces: moves the attachment's device back to the host.
    GiveBack,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `device.find`.
    fn find(&mut self, by: DeviceKey, value: &str) -> Result<Option<LinkInfo>, OpError>;

    /// Answers `device.take`.
    fn take(&mut self, by: DeviceKey, value: &str) -> Result<LinkInfo, OpError>;

    /// Answers `device.give-back`.
    fn give_back(&mut self) -> Result<(), OpError>;
}

impl Device {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Find { by, value } => node.find(*by, value).and_then(|reply| Reply::of(&reply)),
            Self::Take { by, value } => node.take(*by, value).and_then(|reply| Reply::of(&reply)),
            Self::GiveBack => node.give_back().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Find { by, value } => {
                line.add("by", by)?;
                line.add("value", value)?;
            }
            Self::Take { by, value } => {
                line.add("by", by)?;
                line.add("value", value)?;
            }
            Self::GiveBack => {}
        }
        Ok(())
    }
}

impl From<Device> for Operation {
    fn from(operation: Device) -> Self {
        Self::Device(operation)
    }
}

impl OperationTable for Device {
    const ROWS: &'static [Row] = &[FIND, TAKE, GIVE_BACK];

    fn row(&self) -> &'static Row {
        match self {
            Self::Find { .. } => &FIND,
            Self::Take { .. } => &TAKE,
            Self::GiveBack => &GIVE_BACK,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        Vec::new()
    }
}
