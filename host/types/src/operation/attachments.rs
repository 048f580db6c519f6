//! `attachments`: the garbage of this plugin.

use super::table;
use serde::{Deserialize, Serialize};

/// `attachments`: the garbage of this plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Attachments {
    /// Remove the garbage of this plugin: all that it made for attachments of this network that are missing in the
    /// runtime's list of valid attachments.
    #[serde(rename = "attachments-collect")]
    Collect,
}

table! {
    Attachments;
    Collect {} => "attachments.collect", Host, Collection;
}
