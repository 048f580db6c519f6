//! `link-sysctl`: known keys of the attachment's own link.

use super::table;
use crate::Handle;
use serde::{Deserialize, Serialize};

/// `link-sysctl`: known keys of the attachment's own link.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum LinkSysctl {
    /// Set one key. (WIT has a function for each key. The audit log has always called it `sysctl-set`.)
    #[serde(rename = "sysctl-set")]
    Set { link: Handle, key: crate::LinkSysctl, value: bool },
}

table! {
    LinkSysctl;
    Set { link: Own } => "link-sysctl.set", Container, Part;
}
