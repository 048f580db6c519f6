//! `vlan`: the attachment's own link, a VLAN of a granted one.

use super::table;
use crate::{Handle, VlanId};
use serde::{Deserialize, Serialize};

/// `vlan`: the attachment's own link, a VLAN of a granted one.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Vlan {
    /// Make it in the container's namespace, down.
    #[serde(rename = "vlan-create")]
    Create {
        parent: Handle,
        id: VlanId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mtu: Option<u32>,
    },
    /// The attachment's own link, if it is one.
    #[serde(rename = "vlan-find")]
    Find,
}

table! {
    Vlan;
    Create { parent: Parent } => "vlan.create", Both, Link;
    Find {} => "vlan.find", Container, Nothing;
}
