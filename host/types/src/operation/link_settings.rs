//! `link-settings`: attributes of the attachment's own link, which come back on DEL.

use super::table;
use crate::Handle;
use serde::{Deserialize, Serialize};

/// `link-settings`: attributes of the attachment's own link.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum LinkSettings {
    /// Change these attributes.
    #[serde(rename = "link-settings-change")]
    Change { link: Handle, settings: crate::LinkSettings },
    /// Compare these attributes.
    #[serde(rename = "link-settings-check")]
    Check { link: Handle, settings: crate::LinkSettings },
    /// Put back what this plugin changed.
    #[serde(rename = "link-settings-restore")]
    Restore,
}

table! {
    LinkSettings;
    Change { link: Own } => "link-settings.change", Both, Attachment;
    Check { link: Own } => "link-settings.check", Container, Nothing;
    Restore {} => "link-settings.restore", Both, Removal;
}
