//! `tap`: the attachment's own link, whose frames a program in the container has.

use super::table;
use crate::{Handle, TapSettings};
use serde::{Deserialize, Serialize};

/// `tap`: the attachment's own link, whose frames a program in the container has.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Tap {
    /// Make it in the container's namespace, down.
    #[serde(rename = "tap-create")]
    Create { settings: TapSettings },
    /// Make it a port of a bridge in the container's namespace.
    #[serde(rename = "tap-join")]
    Join { link: Handle, bridge: String },
}

table! {
    Tap;
    Create {} => "tap.create", Container, Link;
    Join { link: Own } => "tap.join", Container, Part;
}
