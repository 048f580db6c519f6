//! `link`, for people.

use super::{LOOK_ONLY, OperationTexts, Page};
use crate::plan::Names;
use crate::sentences::{changes, group, say};
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "touch a link in the container",
    always: None,
    groups: &[
        group(&["own", "[method]link.attributes"], |_| say("look at its own link in the container")),
        group(&["[method]link.up"], |objects| changes(objects, "set its own link up")),
        group(&["[method]link.delete"], |objects| {
            changes(objects, "delete its own link, and with it the other end of its pair")
        }),
    ],
    keys: &[LOOK_ONLY],
    objects: |_| Vec::new(),
};

impl OperationTexts for ops::Link {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Own => format!("look whether the container has {}", names.request.ifname),
            Self::Attributes { link } => format!("look at {}", names.link(*link)),
            Self::Up { link } => format!("set {} up, in the container", names.link(*link)),
            Self::Delete { link } => format!("delete {}, and with it the other end of a pair", names.link(*link)),
        }
    }
}
