//! `vrf`: the attachment's own link in a routing domain of the container, a VRF.

use super::table;
use crate::Handle;
use serde::{Deserialize, Serialize};

/// `vrf`: the attachment's own link in a routing domain of the container, a VRF.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Vrf {
    /// Put the own link into a VRF of the container, which is made if it is not there. Routes and addresses go along.
    #[serde(rename = "vrf-join")]
    Join {
        link: Handle,
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        table: Option<u32>,
    },
    /// Compare the VRF of the own link.
    #[serde(rename = "vrf-check")]
    Check { name: String },
    /// Take the own link out of its VRF, and remove the VRF if that was the last one.
    #[serde(rename = "vrf-leave")]
    Leave,
}

table! {
    Vrf;
    Join { link: Own } => "vrf.join", Container, Attachment;
    Check {} => "vrf.check", Container, Nothing;
    Leave {} => "vrf.leave", Container, Removal;
}
