//! `routes`: granted or not.

use super::Decide;
use crate::grammar::Key;
use crate::granted::Grant;
use crate::line::Change;
use crate::rules::RuleInput;
use alloc::vec::Vec;
use postern_types::{OpError, ops};

/// The table has no keys.
pub const KEYS: &[Key] = &[];

impl Decide for ops::Routes {
    fn rule(&self, _: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Add { .. } | Self::RemoveConnected { .. } | Self::List { .. } | Self::Has { .. } => Ok(grant.name),
        }
    }

    fn objects(&self, _: &RuleInput<'_>) -> Vec<Change> {
        match self {
            Self::Add { .. } | Self::RemoveConnected { .. } | Self::List { .. } | Self::Has { .. } => Vec::new(),
        }
    }

    fn gives_up(&self, _: &RuleInput<'_>) -> bool {
        match self {
            Self::Add { .. } | Self::RemoveConnected { .. } | Self::List { .. } | Self::Has { .. } => false,
        }
    }
}
