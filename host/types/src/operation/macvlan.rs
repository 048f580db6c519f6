//! `macvlan`: the attachment's own link, stacked on a granted one.

use super::table;
use crate::{Handle, Mac, MacvlanMode};
use serde::{Deserialize, Serialize};

/// `macvlan`: the attachment's own link, stacked on a granted one.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Macvlan {
    /// Make it in the container's namespace, down.
    #[serde(rename = "macvlan-create")]
    Create {
        parent: Handle,
        mode: MacvlanMode,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mtu: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mac: Option<Mac>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queue: Option<u32>,
    },
    /// The attachment's own link, if it is one.
    #[serde(rename = "macvlan-find")]
    Find,
}

table! {
    Macvlan;
    Create { parent: Parent } => "macvlan.create", Both, Link;
    Find {} => "macvlan.find", Container, Nothing;
}
