//! `link`: to look at it only, or to change and delete it too.

use super::Decide;
use crate::grammar::{Key, LOOK_ONLY};
use crate::granted::Grant;
use crate::line::Change;
use crate::rules::Asked;
use alloc::vec::Vec;
use postern_types::{Capability, Kind, OpError, ops};

/// The keys of its table.
pub const KEYS: &[Key] = &[LOOK_ONLY];

impl Decide for ops::Link {
    fn granted_by(&self, asked: &Asked<'_>) -> Capability {
        match self {
            // Links of every kind can be looked at: by whom they were given to.
            Self::Attributes { link } => (asked.question.kind)(*link).map_or(Capability::Link, Kind::giver),
            Self::Own | Self::Up { .. } | Self::Delete { .. } => Capability::Link,
        }
    }

    fn rule(&self, asked: &Asked<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Own | Self::Attributes { .. } => Ok(grant.name),
            Self::Up { .. } | Self::Delete { .. } => asked.changes(grant),
        }
    }

    fn objects(&self, _: &Asked<'_>) -> Vec<Change> {
        match self {
            Self::Own | Self::Attributes { .. } | Self::Up { .. } | Self::Delete { .. } => Vec::new(),
        }
    }

    fn gives_up(&self, asked: &Asked<'_>) -> bool {
        match self {
            // It is looked at to be deleted, by who made it: a plugin further behind in the list has no say in that.
            Self::Own | Self::Delete { .. } => asked.question.owns_link,
            Self::Attributes { .. } | Self::Up { .. } => false,
        }
    }
}
