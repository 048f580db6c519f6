//! `veth`: the pair between container and host.

use super::table;
use crate::{Handle, Mac};
use serde::{Deserialize, Serialize};

/// `veth`: the pair between container and host.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Veth {
    /// Make the pair with one message, each end in its final namespace. The host end is up.
    #[serde(rename = "veth-create")]
    Create {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mtu: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mac: Option<Mac>,
    },
    /// Look up the attachment's existing pair.
    #[serde(rename = "veth-find")]
    Find,
    /// Wait until the host end is operational.
    #[serde(rename = "veth-wait-running")]
    WaitRunning { host: Handle },
}

table! {
    Veth;
    Create {} => "veth.create", Both, Link;
    Find {} => "veth.find", Both, Nothing;
    WaitRunning { host: Port } => "veth.wait-running", Host, Nothing;
}
