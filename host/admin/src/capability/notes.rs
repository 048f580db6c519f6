//! `notes`, for people.

use super::{OperationTexts, Page};
use crate::plan::Names;
use crate::sentences::{group, say};
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "keep a note for an attachment",
    always: Some(
        "no other plugin reads this plugin's note for an attachment, and the note is removed with the attachment",
    ),
    groups: &[
        group(&["set"], |_| say("keep a note of up to 4 KiB for its own attachment, in the host's record")),
        group(&["get"], |_| say("read its own note for its own attachment")),
    ],
    keys: &[],
    objects: |_| Vec::new(),
};

impl OperationTexts for ops::Notes {
    fn words(&self, _: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Set { text } if text.is_empty() => "keep no note for the attachment".to_owned(),
            Self::Set { text } => format!("keep a note of {} bytes for the attachment", text.len()),
            Self::Get => "read the plugin's note for the attachment".to_owned(),
        }
    }
}
