//! `source-routes`, for people.

use super::{OperationTexts, Page, list};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{about, group, say};
use postern_types::{OpError, Reply, RouteSource, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "choose routes by the sender",
    always: Some(
        "only for this attachment's own addresses, through its own link, in the container: the tables of the kernel and \
         of other attachments are out of reach",
    ),
    groups: &[
        group(&["apply"], |objects| match objects.has("tables") {
            true => about(objects, "tables", "table", |tables| {
                format!("route packets from its own addresses by routing {tables} of the container")
            }),
            false => None,
        }),
        group(&["apply"], |_| {
            say("route packets from its own addresses through its own link, by routing tables of the container that \
                 the host chooses")
        }),
        group(&["check"], |_| say("compare the rules and routes for its own addresses")),
        group(&["remove"], |_| say("remove the rules and routes for its own addresses")),
    ],
    keys: &[Key::some("tables", Source::Value("table", None), WidestValue::Configured)],
    objects: |operation| operation.values(&[("tables", "/table")]),
};

impl OperationTexts for ops::SourceRoutes {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Apply { link, sources, table, hints } => {
                let sources = list(sources.iter().map(source), "no address");
                let table = table.map_or_else(|| "a free table".to_owned(), |table| format!("table {table}"));
                let keeps = if *hints { "; the main table keeps routes to the link's networks" } else { "" };
                format!(
                    "route packets from {sources} through {}, by {table}, in the container{keeps}",
                    names.link(*link)
                )
            }
            Self::Check => "compare the rules and routes for the attachment's addresses".to_owned(),
            Self::Remove => "remove the rules and routes for the attachment's addresses".to_owned(),
        }
    }
}

fn source(source: &RouteSource) -> String {
    let via = source.gateway.map(|gateway| format!(" (via {gateway})")).unwrap_or_default();
    format!("{}{via}", source.address.addr())
}
