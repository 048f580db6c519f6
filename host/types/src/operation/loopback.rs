//! `loopback`: `lo` of the container.

use super::table;
use serde::{Deserialize, Serialize};

/// `loopback`: `lo` of the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Loopback {
    /// Set `lo` up.
    #[serde(rename = "loopback-up")]
    Up,
    /// Set `lo` down.
    #[serde(rename = "loopback-down")]
    Down,
    /// Tell if `lo` is up, and list its addresses.
    #[serde(rename = "loopback-addresses")]
    Addresses,
}

table! {
    Loopback;
    Up {} => "loopback.up", Container, Namespace;
    Down {} => "loopback.down", Container, Removal, IfNamed;
    Addresses {} => "loopback.addresses", Container, Nothing;
}
