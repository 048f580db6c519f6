//! `ipam`: the plugin that the operator's `ipam.type` names, with the attachment's own configuration.

use super::table;
use serde::{Deserialize, Serialize};

/// `ipam`: the plugin that the operator's `ipam.type` names, with the attachment's own configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Ipam {
    /// Its ADD.
    #[serde(rename = "ipam-add")]
    Add,
    /// Its DEL.
    #[serde(rename = "ipam-del")]
    Del,
    /// Its CHECK.
    #[serde(rename = "ipam-check")]
    Check,
    /// Its STATUS.
    #[serde(rename = "ipam-status")]
    Status,
    /// Its GC.
    #[serde(rename = "ipam-gc")]
    Gc,
}

table! {
    Ipam;
    Add {} => "ipam.add", Nowhere, Attachment;
    Del {} => "ipam.del", Nowhere, Release;
    Check {} => "ipam.check", Nowhere, Nothing;
    Status {} => "ipam.status", Nowhere, Nothing;
    Gc {} => "ipam.gc", Nowhere, Collection;
}
