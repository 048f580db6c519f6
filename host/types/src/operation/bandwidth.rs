//! `bandwidth`: limits of the rate of the attachment's own traffic.

use super::table;
use crate::RateLimit;
use serde::{Deserialize, Serialize};

/// `bandwidth`: limits of the rate of the attachment's own traffic.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Bandwidth {
    /// Limit what goes to the container (ingress) and what comes from it (egress).
    #[serde(rename = "bandwidth-limit")]
    Limit {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ingress: Option<RateLimit>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        egress: Option<RateLimit>,
    },
    /// Compare the limits.
    #[serde(rename = "bandwidth-check")]
    Check {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ingress: Option<RateLimit>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        egress: Option<RateLimit>,
    },
    /// Remove the limits.
    #[serde(rename = "bandwidth-remove")]
    Remove,
}

table! {
    Bandwidth;
    Limit {} => "bandwidth.limit", Both, Attachment;
    Check {} => "bandwidth.check", Both, Nothing;
    Remove {} => "bandwidth.remove", Host, Removal;
}
