//! `dummy`, for people.

use super::{LOOK_ONLY, OperationTexts, Page};
use crate::plan::Names;
use crate::sentences::{changes, group};
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "make dummy links",
    always: None,
    groups: &[group(&["create"], |objects| {
        changes(objects, "make its own link as a dummy, which leads nowhere, and no other link while this link exists")
    })],
    keys: &[LOOK_ONLY],
    objects: |_| Vec::new(),
};

impl OperationTexts for ops::Dummy {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Create => format!("make {} in the container, a dummy", names.request.ifname),
        }
    }
}
