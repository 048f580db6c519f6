//! `link`: the attachment's own link.

use super::table;
use crate::Handle;
use serde::{Deserialize, Serialize};

/// `link`: the attachment's own link.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Link {
    /// Look up the attachment's own link.
    #[serde(rename = "link-own")]
    Own,
    /// Read a held link of any kind again. The capability that gave out the handle is needed.
    #[serde(rename = "link-attributes")]
    Attributes { link: Handle },
    /// Set the held link up.
    #[serde(rename = "link-up")]
    Up { link: Handle },
    /// Delete the held link, and with it the other end of a pair.
    #[serde(rename = "link-delete")]
    Delete { link: Handle },
}

table! {
    Link;
    Own {} => "link.own", Container, Nothing, IfLinkMaker;
    Attributes { link: Any } => "link.attributes", Both, Nothing;
    Up { link: Own } => "link.up", Container, Part;
    Delete { link: Own } => "link.delete", Container, Removal, IfLinkMaker;
}
