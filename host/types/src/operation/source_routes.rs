//! `source-routes`: what the attachment's own addresses send leaves by the attachment's own link.

use super::table;
use crate::{Handle, RouteSource};
use serde::{Deserialize, Serialize};

/// `source-routes`: what the attachment's own addresses send leaves by the attachment's own link.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum SourceRoutes {
    /// Give each source its rule. Without a table each gets one of its own, with the link's routes, which leave the main
    /// table. With `hints` the main table keeps the routes to the link's own networks.
    #[serde(rename = "source-routes-apply")]
    Apply {
        link: Handle,
        sources: Vec<RouteSource>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        table: Option<u32>,
        hints: bool,
    },
    /// Compare rules and routes with the record.
    #[serde(rename = "source-routes-check")]
    Check,
    /// Remove the rules, and put the routes back.
    #[serde(rename = "source-routes-remove")]
    Remove,
}

table! {
    SourceRoutes;
    Apply { link: Own } => "source-routes.apply", Container, Attachment;
    Check {} => "source-routes.check", Container, Nothing;
    Remove {} => "source-routes.remove", Container, Removal;
}
