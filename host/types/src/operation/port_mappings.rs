//! `port-mappings`: ports of the node that lead to the attachment's own addresses.

use super::table;
use crate::{Forward, NatSources};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// `port-mappings`: ports of the node that lead to the attachment's own addresses.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum PortMappings {
    /// Make the rules: to these addresses, at most one of a family.
    #[serde(rename = "port-mappings-ensure")]
    Ensure { addresses: Vec<IpAddr>, forwards: Vec<Forward>, masquerade: NatSources },
    /// Compare the rules.
    #[serde(rename = "port-mappings-check")]
    Check { addresses: Vec<IpAddr>, forwards: Vec<Forward>, masquerade: NatSources },
    /// Remove the attachment's rules.
    #[serde(rename = "port-mappings-remove")]
    Remove,
}

table! {
    PortMappings;
    Ensure {} => "port-mappings.ensure", Host, Attachment;
    Check {} => "port-mappings.check", Host, Nothing;
    Remove {} => "port-mappings.remove", Host, Removal;
}
