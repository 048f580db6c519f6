//! `device`: a link of the node that is moved into the container, and back.

use super::table;
use crate::DeviceKey;
use serde::{Deserialize, Serialize};

/// `device`: a link of the node that is moved into the container, and back.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Device {
    /// Look at a granted device of the host.
    #[serde(rename = "device-find")]
    Find { by: DeviceKey, value: String },
    /// Move it into the container, name it `CNI_IFNAME`, and set it up.
    #[serde(rename = "device-take")]
    Take { by: DeviceKey, value: String },
    /// Move the attachment's device back.
    #[serde(rename = "device-give-back")]
    GiveBack,
}

table! {
    Device;
    Find {} => "device.find", Host, Nothing;
    Take {} => "device.take", Both, Link;
    GiveBack {} => "device.give-back", Both, Removal, IfLinkMaker;
}
