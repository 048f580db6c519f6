//! `parent`: a link that other links are stacked on, and that the operator's configuration names: a master.

use super::table;
use serde::{Deserialize, Serialize};

/// `parent`: a link that other links are stacked on.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Parent {
    /// Look at a granted link, of the host or of the container. An empty name is the link of the default route there.
    #[serde(rename = "parent-find")]
    Find { name: String, in_container: bool },
}

table! {
    Parent;
    Find {} => "parent.find", Both, Nothing;
}
