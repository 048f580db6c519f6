//! `routes`: the routes through the attachment's own link.

use super::table;
use crate::{Handle, Route};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// `routes`: the routes through the attachment's own link.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Routes {
    /// Add routes. Every route leaves through the held link.
    #[serde(rename = "routes-add")]
    Add { link: Handle, routes: Vec<Route> },
    /// Remove the kernel's own prefix routes of these networks.
    #[serde(rename = "routes-remove-connected")]
    RemoveConnected { link: Handle, networks: Vec<IpNet> },
    /// List the main table's routes through the held link.
    #[serde(rename = "routes-list")]
    List { link: Handle },
    /// Tell which of these routes are there.
    #[serde(rename = "routes-has")]
    Has { link: Handle, routes: Vec<Route> },
}

table! {
    Routes;
    Add { link: Own } => "routes.add", Container, Part;
    RemoveConnected { link: Own } => "routes.remove-connected", Container, Part;
    List { link: Own } => "routes.list", Container, Nothing;
    Has { link: Own } => "routes.has", Container, Nothing;
}
