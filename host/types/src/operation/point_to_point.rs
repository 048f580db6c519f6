//! `point-to-point`: routes to the attachment's addresses, on the host.

use super::table;
use crate::Handle;
use serde::{Deserialize, Serialize};

/// `point-to-point`: routes to the attachment's addresses, on the host.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum PointToPoint {
    /// Put the gateway address, and a route to each of the attachment's addresses, on its host end.
    #[serde(rename = "point-to-point-ensure")]
    Ensure { host: Handle },
}

table! {
    PointToPoint;
    Ensure { host: HostEnd } => "point-to-point.ensure", Host, Part;
}
