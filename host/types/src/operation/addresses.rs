//! `addresses`: the addresses on the attachment's own link.

use super::table;
use crate::Handle;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// `addresses`: the addresses on the attachment's own link.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Addresses {
    /// Put addresses on the held link. They must be the attachment's own.
    #[serde(rename = "addresses-add")]
    Add { link: Handle, addresses: Vec<IpNet> },
    /// List the addresses.
    #[serde(rename = "addresses-list")]
    List { link: Handle },
    /// Tell which of these addresses are there.
    #[serde(rename = "addresses-has")]
    Has { link: Handle, addresses: Vec<IpNet> },
    /// Wait for duplicate address detection.
    #[serde(rename = "addresses-settle")]
    Settle { link: Handle },
}

table! {
    Addresses;
    Add { link: Own } => "addresses.add", Container, Part;
    List { link: Own } => "addresses.list", Container, Nothing;
    Has { link: Own } => "addresses.has", Container, Nothing;
    Settle { link: Own } => "addresses.settle", Container, Nothing;
}
