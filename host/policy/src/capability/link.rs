//! `link`: granted or not.

use super::Decide;
use crate::grammar::Key;
use crate::granted::Grant;
use crate::line::Change;
use crate::rules::Asked;
use alloc::vec::Vec;
use postern_types::{Capability, Kind, OpError, ops};

/// There is nothing to choose.
pub const KEYS: &[Key] = &[];

impl Decide for ops::Link {
    fn granted_by(&self, asked: &Asked<'_>) -> Capability {
        match self {
            // Links of every kind can be looked at: by whom they were given to.
            Self::Attributes { link } => (asked.question.kind)(*link).map_or(Capability::Link, Kind::giver),
            Self::Own | Self::Up { .. } | Self::Delete { .. } => Capability::Link,
        }
    }

    fn rule(&self, _: &Asked<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Own | Self::Attributes { .. } | Self::Up { .. } | Self::Delete { .. } => Ok(grant.name),
        }
    }

    fn objects(&self, _: &Asked<'_>) -> Vec<Change> {
        match self {
            Self::Own | Self::Attributes { .. } | Self::Up { .. } | Self::Delete { .. } => Vec::new(),
        }
    }

    fn gives_up(&self, _: &Asked<'_>) -> bool {
        match self {
            // It is looked at to be deleted.
            Self::Own | Self::Delete { .. } => true,
            Self::Attributes { .. } | Self::Up { .. } => false,
        }
    }
}
