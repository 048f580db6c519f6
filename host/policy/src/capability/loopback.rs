//! `loopback`: granted or not.

use super::Decide;
use crate::grammar::Key;
use crate::granted::Grant;
use crate::line::Change;
use crate::rules::RuleInput;
use alloc::vec::Vec;
use postern_types::{Capability, OpError, ops};

/// The table has no keys.
pub const KEYS: &[Key] = &[];

impl Decide for ops::Loopback {
    fn rule(&self, _: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Up | Self::Down | Self::Addresses => Ok(grant.name),
        }
    }

    fn objects(&self, _: &RuleInput<'_>) -> Vec<Change> {
        match self {
            Self::Up | Self::Down | Self::Addresses => Vec::new(),
        }
    }

    fn gives_up(&self, input: &RuleInput<'_>) -> bool {
        match self {
            // All attachments of the container share it. Only a plugin whose policy file names `loopback` sets it down.
            Self::Down => input.granted.knows(Capability::Loopback),
            Self::Up | Self::Addresses => false,
        }
    }
}
