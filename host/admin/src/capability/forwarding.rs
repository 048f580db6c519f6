//! `forwarding`, for people.

use super::{OperationTexts, Page};
use crate::plan::Names;
use crate::sentences::{group, say};
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "switch IP forwarding",
    always: None,
    groups: &[group(&["enable"], |_| say("have the node's IP forwarding switched on (never off)"))],
    keys: &[],
    objects: |_| Vec::new(),
};

impl OperationTexts for ops::Forwarding {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Enable => format!("switch {} forwarding on", names.families()),
        }
    }
}
