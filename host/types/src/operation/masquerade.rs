//! `masquerade`: source NAT for the attachment's addresses.

use super::table;
use crate::Backend;
use serde::{Deserialize, Serialize};

/// `masquerade`: source NAT for the attachment's addresses.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Masquerade {
    /// Make the rules.
    #[serde(rename = "masquerade-ensure")]
    Ensure {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        backend: Option<Backend>,
    },
    /// Compare the rules.
    #[serde(rename = "masquerade-check")]
    Check {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        backend: Option<Backend>,
    },
    /// Remove the rules of both backends.
    #[serde(rename = "masquerade-remove")]
    Remove,
}

table! {
    Masquerade;
    Ensure {} => "masquerade.ensure", Host, Attachment;
    Check {} => "masquerade.check", Host, Nothing;
    Remove {} => "masquerade.remove", Host, Removal;
}
