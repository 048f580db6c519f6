//! `bridge`: the granted bridge, and the attachment's own port on it.

use super::table;
use crate::{Handle, PortSpec};
use serde::{Deserialize, Serialize};

/// `bridge`: the granted bridge, and the attachment's own port on it.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Bridge {
    /// Create or find the granted bridge, and set it up. A node object.
    #[serde(rename = "bridge-ensure")]
    Ensure {
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mtu: Option<u32>,
        vlan_filtering: bool,
        promisc: bool,
    },
    /// Look up the granted bridge.
    #[serde(rename = "bridge-find")]
    Find { name: String },
    /// Look up the link of the host that an earlier plugin made, for this attachment to join with.
    #[serde(rename = "bridge-previous-link")]
    PreviousLink,
    /// Make the attachment's own host end, or that link, a port of the bridge.
    #[serde(rename = "bridge-attach")]
    Attach { bridge: Handle, host: Handle, port: PortSpec },
    /// Put the gateways of the attachment's addresses on the bridge. If the port has an access VLAN, they go on its
    /// VLAN gateway `<bridge>.<vlan>`. Node objects.
    #[serde(rename = "bridge-ensure-gateways")]
    EnsureGateways { bridge: Handle, port: PortSpec, force: bool },
}

table! {
    Bridge;
    Ensure {} => "bridge.ensure", Host, Node;
    Find {} => "bridge.find", Host, Nothing;
    PreviousLink {} => "bridge.previous-link", Host, Nothing;
    Attach { bridge: Bridge, host: Port } => "bridge.attach", Host, Part;
    EnsureGateways { bridge: Bridge } => "bridge.ensure-gateways", Host, Node;
}
