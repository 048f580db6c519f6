//! `leases`: the leases in the directory that the operator's `ipam.dataDir` names.

use super::table;
use crate::LeaseRange;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// `leases`: the leases in the directory that the operator's `ipam.dataDir` names.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Leases {
    /// Lease one address per range set for this attachment.
    #[serde(rename = "leases-reserve")]
    Reserve { sets: Vec<Vec<LeaseRange>>, requested: Vec<IpAddr> },
    /// List this attachment's addresses.
    #[serde(rename = "leases-held")]
    Held,
    /// Give up this attachment's addresses.
    #[serde(rename = "leases-release")]
    Release,
    /// Free every lease of this network whose attachment is missing in the runtime's list of valid attachments.
    #[serde(rename = "leases-retain")]
    Retain,
    /// Tell if every range set has a free address.
    #[serde(rename = "leases-available")]
    Available { sets: Vec<Vec<LeaseRange>> },
}

table! {
    Leases;
    Reserve {} => "leases.reserve", Nowhere, Attachment;
    Held {} => "leases.held", Nowhere, Nothing;
    Release {} => "leases.release", Nowhere, Release, IfAddressPlugin;
    Retain {} => "leases.retain", Nowhere, Collection;
    Available {} => "leases.available", Nowhere, Nothing;
}
