//! `link-sysctl`: known keys of the attachment's own link.

use super::table;
use crate::Handle;
use serde::{Deserialize, Serialize};

/// `link-sysctl`: known keys of the attachment's own link.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum LinkSysctl {
    /// One key. (WIT has a function for each; the audit log has known it as `sysctl-set` from the beginning.)
    #[serde(rename = "sysctl-set")]
    Set { link: Handle, key: crate::LinkSysctl, value: bool },
}

table! {
    LinkSysctl;
    Set { link: Own } => "link-sysctl.set", Container, Part;
}
