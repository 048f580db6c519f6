//! `attachments`, for people.

use super::{OperationTexts, Page};
use crate::plan::Names;
use crate::sentences::{group, say};
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "collect garbage",
    always: None,
    groups: &[group(&["collect"], |_| {
        say("remove its own objects of attachments of this network that the runtime no longer lists")
    })],
    keys: &[],
    objects: |_| Vec::new(),
};

impl OperationTexts for ops::Attachments {
    fn words(&self, _: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Collect => "remove the objects of attachments that are gone".to_owned(),
        }
    }
}
