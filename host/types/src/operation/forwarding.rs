//! `forwarding`: IP forwarding of the node.

use super::table;
use serde::{Deserialize, Serialize};

/// `forwarding`: IP forwarding of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Forwarding {
    /// Enable IP forwarding for the families of the attachment's addresses. A node object.
    #[serde(rename = "forwarding-enable")]
    Enable,
}

table! {
    Forwarding;
    Enable {} => "forwarding.enable", Host, Node;
}
