//! `loopback`, for people.

use super::{OperationTexts, Page};
use crate::plan::Names;
use crate::sentences::{group, say};
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "touch lo",
    always: None,
    groups: &[
        group(&["up"], |_| say("set lo of the container up")),
        group(&["down"], |_| say("set lo of the container down")),
        group(&["addresses"], |_| say("look at lo of the container")),
    ],
    keys: &[],
    objects: |_| Vec::new(),
};

impl OperationTexts for ops::Loopback {
    fn words(&self, _: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Up => "set lo up, in the container".to_owned(),
            Self::Down => "set lo down, in the container".to_owned(),
            Self::Addresses => "look at lo, in the container".to_owned(),
        }
    }
}
