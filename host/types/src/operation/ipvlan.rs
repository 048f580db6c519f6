//! `ipvlan`: the attachment's own link, with the link-layer address of a granted one.

use super::table;
use crate::{Handle, IpvlanMode};
use serde::{Deserialize, Serialize};

/// `ipvlan`: the attachment's own link, with the link-layer address of a granted one.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Ipvlan {
    /// Make it in the container's namespace, down.
    #[serde(rename = "ipvlan-create")]
    Create {
        parent: Handle,
        mode: IpvlanMode,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mtu: Option<u32>,
    },
    /// The attachment's own link, if it is one.
    #[serde(rename = "ipvlan-find")]
    Find,
}

table! {
    Ipvlan;
    Create { parent: Parent } => "ipvlan.create", Both, Link;
    Find {} => "ipvlan.find", Container, Nothing;
}
