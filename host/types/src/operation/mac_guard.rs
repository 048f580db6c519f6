//! `mac-guard`: only frames with one source address pass the attachment's host end.

use super::table;
use crate::{Handle, Mac};
use serde::{Deserialize, Serialize};

/// `mac-guard`: only frames with one source address pass the attachment's host end.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum MacGuard {
    /// Make the rules.
    #[serde(rename = "mac-guard-ensure")]
    Ensure { host: Handle, mac: Mac },
    /// Compare the rules.
    #[serde(rename = "mac-guard-check")]
    Check { host: Handle, mac: Mac },
    /// Remove the rules.
    #[serde(rename = "mac-guard-remove")]
    Remove,
}

table! {
    MacGuard;
    Ensure { host: Port } => "mac-guard.ensure", Host, Attachment;
    Check { host: SeenEnd } => "mac-guard.check", Host, Nothing;
    Remove {} => "mac-guard.remove", Host, Removal;
}
