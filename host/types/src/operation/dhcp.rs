//! `dhcp`: the lease that the node's DHCP service keeps for this attachment.

use super::table;
use serde::{Deserialize, Serialize};

/// `dhcp`: the lease that the node's DHCP service keeps for this attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Dhcp {
    /// Have the service get a lease from a server, and keep it alive.
    #[serde(rename = "dhcp-acquire")]
    Acquire,
    /// Ask the service for the lease as it is now.
    #[serde(rename = "dhcp-check")]
    Check,
    /// Have the service give the lease back.
    #[serde(rename = "dhcp-release")]
    Release,
    /// Ask if the service answers.
    #[serde(rename = "dhcp-status")]
    Status,
}

table! {
    Dhcp;
    Acquire {} => "dhcp.acquire", Both, Attachment;
    Check {} => "dhcp.check", Nowhere, Nothing;
    Release {} => "dhcp.release", Nowhere, Release, IfAddressPlugin;
    Status {} => "dhcp.status", Nowhere, Nothing;
}
