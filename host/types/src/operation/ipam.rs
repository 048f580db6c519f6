//! `ipam`: the delegate that the operator's `ipam.type` names, with the attachment's own configuration.

use super::table;
use serde::{Deserialize, Serialize};

/// `ipam`: the delegate that the operator's `ipam.type` names, with the attachment's own configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Ipam {
    /// The delegate's ADD.
    #[serde(rename = "ipam-add")]
    Add,
    /// The delegate's DEL.
    #[serde(rename = "ipam-del")]
    Del,
    /// The delegate's CHECK.
    #[serde(rename = "ipam-check")]
    Check,
    /// The delegate's STATUS.
    #[serde(rename = "ipam-status")]
    Status,
    /// The delegate's GC.
    #[serde(rename = "ipam-gc")]
    Gc,
}

table! {
    Ipam;
    Add {} => "ipam.add", Nowhere, Attachment;
    Del {} => "ipam.del", Nowhere, Release, Allowed;
    Check {} => "ipam.check", Nowhere, Nothing;
    Status {} => "ipam.status", Nowhere, Nothing;
    Gc {} => "ipam.gc", Nowhere, Collection;
}
