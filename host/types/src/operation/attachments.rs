//! `attachments`: what this plugin has left.

use super::table;
use serde::{Deserialize, Serialize};

/// `attachments`: what this plugin has left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Attachments {
    /// Remove what this plugin left for attachments of this network that the runtime's list of valid attachments lacks.
    #[serde(rename = "attachments-collect")]
    Collect,
}

table! {
    Attachments;
    Collect {} => "attachments.collect", Host, Collection;
}
