//! `notes`: a note that a plugin keeps for an attachment: a short text in the plugin's section of the attachment's
//! record.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes, WithoutGrant};
use crate::{Handle, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const SET: Row = Row::new("notes.set", "notes-set", ActsIn::Nowhere, Lasting::Attachment);
const GET: Row =
    Row::new("notes.get", "notes-get", ActsIn::Nowhere, Lasting::Nothing).without_grant(WithoutGrant::Allowed);

/// The operations of `notes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/notes.wit` describe its fields")]
pub enum Notes {
    /// Keeps a text of at most 4096 bytes, in place of the earlier text.
    Set { text: String },
    /// Returns the text, if there is one.
    Get,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `notes.set`.
    fn set(&mut self, text: &str) -> Result<(), OpError>;

    /// Answers `notes.get`.
    fn get(&mut self) -> Result<Option<String>, OpError>;
}

impl Notes {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Set { text } => node.set(text).and_then(|reply| Reply::of(&reply)),
            Self::Get => node.get().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Set { text } => {
                line.add("text_bytes", &text.len())?;
            }
            Self::Get => {}
        }
        Ok(())
    }
}

impl From<Notes> for Operation {
    fn from(operation: Notes) -> Self {
        Self::Notes(operation)
    }
}

impl OperationTable for Notes {
    const ROWS: &'static [Row] = &[SET, GET];

    fn row(&self) -> &'static Row {
        match self {
            Self::Set { .. } => &SET,
            Self::Get => &GET,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        Vec::new()
    }
}
