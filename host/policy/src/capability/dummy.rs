//! `dummy`: granted or not.

use super::Decide;
use crate::grammar::{Key, LOOK_ONLY};
use crate::granted::Grant;
use crate::line::Change;
use crate::rules::RuleInput;
use alloc::vec::Vec;
use postern_types::{OpError, ops};

/// The keys of its table.
pub const KEYS: &[Key] = &[LOOK_ONLY];

impl Decide for ops::Dummy {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Create => input.changes(grant).map(|_| grant.name),
        }
    }

    fn objects(&self, _: &RuleInput<'_>) -> Vec<Change> {
        match self {
            Self::Create => Vec::new(),
        }
    }

    fn gives_up(&self, _: &RuleInput<'_>) -> bool {
        match self {
            Self::Create => false,
        }
    }
}
