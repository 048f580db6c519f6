//! `firewall`: the attachment's addresses that the node forwards, and the isolation of its bridge.

use super::table;
use crate::IngressPolicy;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// `firewall`: the attachment's addresses that the node forwards, and the isolation of its bridge.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Firewall {
    /// Let traffic from these addresses, and the answers to it, be forwarded.
    #[serde(rename = "firewall-admit")]
    Admit { addresses: Vec<IpNet> },
    /// Isolate the attachment's bridge. A node object.
    #[serde(rename = "firewall-isolate")]
    Isolate { ingress: IngressPolicy },
    /// Compare the rules.
    #[serde(rename = "firewall-check")]
    Check { addresses: Vec<IpNet> },
    /// Remove the rules for the attachment's addresses.
    #[serde(rename = "firewall-remove")]
    Remove,
}

table! {
    Firewall;
    Admit {} => "firewall.admit", Host, Attachment;
    Isolate {} => "firewall.isolate", Both, Node;
    Check {} => "firewall.check", Host, Nothing;
    Remove {} => "firewall.remove", Host, Removal;
}
